/** A stream that is joined late starts from the beginning. Until it has caught up, the loaded message stays on the page. */

import type { Message, Part } from '../api/types';

/** Return the messages to show. `known` is the message as loaded before its stream was joined. */
export function catchUp(messages: Message[], known: Message | null): Message[] {
  const last = messages.at(-1);
  if (!known || !last || last.id !== known.id || hasReached(last, known)) return messages;
  return [...messages.slice(0, -1), known];
}

function hasReached(message: Message, known: Message): boolean {
  const end = known.parts.length - 1;
  const [there, here] = [message.parts[end], known.parts[end]];
  return message.parts.length > known.parts.length || !here || (there !== undefined && progress(there) >= progress(here));
}

/** Return the progress of a part: the length of its text, or the state of its call. */
function progress(part: Part): number {
  if ('text' in part && typeof part.text === 'string') return part.text.length;
  const state = 'state' in part ? part.state : undefined;
  if (state === undefined) return 0;
  return state.startsWith('output-') ? 3 : state.startsWith('approval-') ? 2 : state === 'input-available' ? 1 : 0;
}
