/** The desk's page: a login, the chats of whoever is logged in, and one of them with `useChat`. */

import { useChat } from '@ai-sdk/react';
import { DefaultChatTransport, isToolUIPart, getToolName, lastAssistantMessageIsCompleteWithApprovalResponses } from 'ai';
import type { UIMessage } from 'ai';
import { useEffect, useState } from 'react';
import type { FormEvent } from 'react';
import { createRoot } from 'react-dom/client';

interface Opened {
  id: string;
  messages: UIMessage[];
}

async function get<T>(path: string): Promise<T> {
  const response = await fetch(path);
  if (!response.ok) throw new Error(`${path} answered ${response.status}`);
  return (await response.json()) as T;
}

function Desk() {
  const [name, setName] = useState<string | null | undefined>(undefined);
  useEffect(() => void get<{ name: string | null }>('/me').then((me) => setName(me.name)), []);
  if (name === undefined) return null;
  return name === null ? <Login onDone={setName} /> : <Home name={name} onLeft={() => setName(null)} />;
}

function Login({ onDone }: { onDone: (name: string) => void }) {
  const [wrong, setWrong] = useState(false);
  const logIn = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(event.currentTarget));
    const headers = { 'content-type': 'application/json' };
    const response = await fetch('/login', { method: 'POST', headers, body: JSON.stringify(given) });
    setWrong(!response.ok);
    if (response.ok) onDone(String(given.name));
  };
  return (
    <form onSubmit={(event) => void logIn(event)}>
      <input name="name" aria-label="Name" required />
      <input name="password" aria-label="Password" type="password" required />
      <button>Log in</button>
      {wrong && <p role="alert">The name or the password is wrong.</p>}
    </form>
  );
}

function Home({ name, onLeft }: { name: string; onLeft: () => void }) {
  const [chats, setChats] = useState<{ id: string; title: string | null }[]>([]);
  const [spent, setSpent] = useState<{ calls: number; cost_usd: number } | null>(null);
  const [opened, setOpened] = useState<Opened>(() => ({ id: crypto.randomUUID(), messages: [] }));
  const look = async () => {
    setChats(await get('/chats'));
    setSpent(await get('/spend'));
  };
  useEffect(() => void look(), []);
  const open = async (id: string) => setOpened({ id, messages: await get(`/chats/${encodeURIComponent(id)}`) });
  const leave = async () => {
    await fetch('/logout', { method: 'POST' });
    onLeft();
  };
  return (
    <>
      <header>
        <h1>Help desk</h1>
        <span>{name}</span>
        <button onClick={() => void leave()}>Log out</button>
        <output aria-label="Spent">{spent && `${spent.calls} calls, $${spent.cost_usd.toFixed(4)}`}</output>
      </header>
      <nav aria-label="Chats">
        {chats.map((chat) => (
          <button key={chat.id} onClick={() => void open(chat.id)}>
            {chat.title ?? 'Untitled'}
          </button>
        ))}
      </nav>
      <Chat key={opened.id} opened={opened} onSettled={() => void look()} />
    </>
  );
}

function Chat({ opened, onSettled }: { opened: Opened; onSettled: () => void }) {
  const { messages, sendMessage, status, error, addToolApprovalResponse } = useChat({
    id: opened.id,
    messages: opened.messages,
    resume: opened.messages.length > 0,
    transport: new DefaultChatTransport({ api: '/api/chat' }),
    // What was asked is answered by the next post, which goes by itself.
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
    onFinish: onSettled,
  });
  const send = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = event.currentTarget;
    const files = (form.elements.namedItem('files') as HTMLInputElement).files ?? undefined;
    void sendMessage({ text: String(new FormData(form).get('text')), files });
    form.reset();
  };
  return (
    <main data-status={status}>
      {messages.map((message) => (
        <article key={message.id} data-role={message.role}>
          {message.parts.map((part, index) => {
            if (part.type === 'text') return <p key={index}>{part.text}</p>;
            if (part.type === 'file') return <Picture key={index} url={part.url} isPicture={part.mediaType.startsWith('image/')} />;
            if (!isToolUIPart(part)) return null;
            return (
              <div key={index} className="call" data-state={part.state}>
                {getToolName(part)} {JSON.stringify(part.input)}
                {part.approval && <Answer approval={part.approval} onAnswer={(approved) => void addToolApprovalResponse({ id: part.approval!.id, approved })} />}
                {part.state === 'output-available' && <p>{typeof part.output === 'string' ? part.output : JSON.stringify(part.output)}</p>}
                {part.state === 'output-error' && <p>{part.errorText}</p>}
              </div>
            );
          })}
        </article>
      ))}
      {error && <p role="alert">{error.message}</p>}
      <form onSubmit={send}>
        <input name="text" aria-label="Message" required />
        <input name="files" aria-label="Files" type="file" multiple />
        <button disabled={status !== 'ready' && status !== 'error'}>Send</button>
      </form>
    </main>
  );
}

/** Asks for an answer, and then shows it in the same place. */
function Answer({ approval, onAnswer }: { approval: { approved?: boolean }; onAnswer: (approved: boolean) => void }) {
  if (approval.approved !== undefined) return <p className="answer">{approval.approved ? 'Allowed' : 'Refused'}</p>;
  return (
    <div className="answer">
      <button onClick={() => onAnswer(true)}>Allow</button>
      <button onClick={() => onAnswer(false)}>Refuse</button>
    </div>
  );
}

function Picture({ url, isPicture }: { url: string; isPicture: boolean }) {
  return isPicture ? <img src={url} alt="" /> : <a href={url}>A file</a>;
}

createRoot(document.getElementById('root')!).render(<Desk />);
