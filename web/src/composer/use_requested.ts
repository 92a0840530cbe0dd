/** Runs what was selected in the palette, in the open conversation. */

import { useEffect } from 'react';
import { paletteRequest } from '../palette/requested';
import { useStore } from '../state/store';
import { COMMANDS } from './commands';
import { mergeDrafts } from './draft';
import { runCommand, type CommandContext } from './run_command';
import type { DraftField } from './use_draft';

interface Parts {
  commands: CommandContext;
  draft: DraftField;
  toEnd: (late: boolean) => void;
}

export function useRequested(main: boolean, { commands, draft, toEnd }: Parts): void {
  const request = useStore(paletteRequest, (state) => state.request);
  useEffect(() => {
    if (!main || !request) return;
    paletteRequest.set({ request: null });
    const { text, editing } = draft.now();
    if (request.kind === 'model') {
      commands.chooseModel(request.name);
      commands.showResult(`The next message uses ${request.name}.`);
    } else if (request.kind === 'text') {
      draft.put({ text: mergeDrafts(text, request.text), editing });
      toEnd(false);
    } else {
      const command = COMMANDS.find((known) => known.name === request.name);
      if (!command) return;
      // Put a command with required arguments into the composer.
      if (command.usage === '' || command.usage.startsWith('[')) void runCommand(command.name, '', commands).catch(() => undefined);
      else {
        draft.put({ text: `/${command.name} `, editing: null });
        toEnd(false);
      }
    }
  }, [main, request, commands, draft, toEnd]);
}
