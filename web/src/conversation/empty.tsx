/** The empty state of a session. */

import { modelName } from '../api/types';
import { splitName } from '../composer/model_choice';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';

interface Example {
  text: string;
  hint: string;
}

/** Example prompts per demo model; `tour` is the default. */
const DEMO_EXAMPLES: Record<string, readonly Example[]> = {
  tour: [
    { text: 'What is clew?', hint: 'a short tour, streamed as Markdown' },
    { text: 'List the files in this folder', hint: 'a tool call that needs no approval' },
    { text: 'Run `echo hello from the labyrinth`', hint: 'a command that needs your approval' },
  ],
  tools: [
    { text: '!ls', hint: 'a tool call that needs no approval' },
    { text: '!bash echo hello from the labyrinth', hint: 'a command that needs your approval' },
    { text: '!task What is a labyrinth?', hint: 'a subagent with its own session' },
  ],
  long: [
    { text: '300', hint: 'an answer of 300 words' },
    { text: '3000', hint: 'long enough to close the page and come back' },
    { text: '100000', hint: 'long enough to stop it' },
  ],
  fail: [
    { text: '401', hint: 'an invalid key' },
    { text: '429 2', hint: 'two failures, then an answer' },
    { text: '500', hint: 'a provider error' },
  ],
};
const DEFAULT_EXAMPLES: readonly Example[] = [
  { text: 'What is in this folder?', hint: 'a look around the workspace' },
  { text: 'Explain what this project does', hint: 'reading, then a summary' },
  { text: 'Write a plan for ', hint: 'yours to finish' },
];

/** `first`: shown on the start page, which has a heading of its own. */
export function Empty({ first = false }: { first?: boolean }) {
  const conversation = useThis();
  const name = useStore(conversation.store, (state) => state.picked ?? modelName(state.session?.model));
  const [provider, id = ''] = splitName(name).base.split('/');
  const examples = provider !== 'demo' ? DEFAULT_EXAMPLES : Object.hasOwn(DEMO_EXAMPLES, id) ? DEMO_EXAMPLES[id]! : DEMO_EXAMPLES.tour!;
  return (
    <div className={`mx-auto grid w-full max-w-xl gap-4 px-4 ${first ? 'py-6' : 'py-10'}`}>
      {!first && <h2 className="text-xl font-semibold">No messages yet</h2>}
      <p className="text-quiet">Write a message, or start with one of these. {name && `Model: ${name}`}</p>
      <ul className="grid gap-2">
        {examples.map((example) => (
          <li key={example.text}>
            <button
              type="button"
              onClick={() => conversation.fillComposer(example.text)}
              className="grid w-full gap-0.5 rounded-lg border border-line bg-raised px-3.5 py-2.5 text-left hover:bg-panel"
            >
              <span>{example.text}</span>
              <span className="text-sm text-quiet">{example.hint}</span>
            </button>
          </li>
        ))}
      </ul>
    </div>
  );
}
