/** Does what was picked in the palette, in the conversation that is open. */

import { useEffect } from 'react';
import { wanted } from '../palette/wanted';
import { useStore } from '../state/store';
import { COMMANDS } from './commands';
import { joinDrafts } from './draft';
import { runCommand, type Surroundings } from './run_command';
import type { DraftField } from './use_draft';

interface Parts {
  around: Surroundings;
  draft: DraftField;
  toEnd: (late: boolean) => void;
}

export function useWanted(main: boolean, { around, draft, toEnd }: Parts): void {
  const asked = useStore(wanted, (state) => state.wanted);
  useEffect(() => {
    if (!main || !asked) return;
    wanted.set({ wanted: null });
    const { text, editing } = draft.now();
    if (asked.kind === 'model') {
      around.chooseModel(asked.name);
      around.tell(`The next message goes to ${asked.name}.`);
    } else if (asked.kind === 'text') {
      draft.put({ text: joinDrafts(text, asked.text), editing });
      toEnd(false);
    } else {
      const command = COMMANDS.find((known) => known.name === asked.name);
      if (!command) return;
      // One that wants words is put where they are written.
      if (command.usage === '' || command.usage.startsWith('[')) void runCommand(command.name, '', around).catch(() => undefined);
      else {
        draft.put({ text: `/${command.name} `, editing: null });
        toEnd(false);
      }
    }
  }, [main, asked, around, draft, toEnd]);
}
