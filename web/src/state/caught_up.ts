/** A stream that is joined late begins with what was read already. Until it has caught up, that stays on the page. */

import type { Message, Part } from '../api/types';

/** `known` is the message as it was read before its stream was joined. */
export function caughtUp(messages: Message[], known: Message | null): Message[] {
  const last = messages.at(-1);
  if (!known || !last || last.id !== known.id || reaches(last, known)) return messages;
  return [...messages.slice(0, -1), known];
}

function reaches(message: Message, known: Message): boolean {
  const end = known.parts.length - 1;
  const [there, here] = [message.parts[end], known.parts[end]];
  return message.parts.length > known.parts.length || !here || (there !== undefined && progress(there) >= progress(here));
}

/** How far a part has come: the length of its text, or the state of its call. */
function progress(part: Part): number {
  if ('text' in part && typeof part.text === 'string') return part.text.length;
  const state = 'state' in part ? part.state : undefined;
  if (state === undefined) return 0;
  return state.startsWith('output-') ? 3 : state.startsWith('approval-') ? 2 : state === 'input-available' ? 1 : 0;
}
