/** The bar below the text: attachments, model, mode and the send button. */

import { useRef } from 'react';
import { IconButton } from '../ui/button';
import { ModeChoice } from './mode_choice';
import { ModelPicker } from './model_picker';
import { SendButton } from './send_button';
import type { useModelChoice } from './use_model_choice';

interface Props {
  model: ReturnType<typeof useModelChoice>;
  modelsOpen: boolean;
  onModels: (open: boolean) => void;
  onFiles: (files: File[]) => void;
  state: { live: boolean; waiting: boolean; editing: boolean; empty: boolean };
  onStop: () => void;
}

export function ComposerBar({ model, modelsOpen, onModels, onFiles, state, onStop }: Props) {
  const input = useRef<HTMLInputElement>(null);
  return (
    <div className="flex items-center gap-1 px-1.5 pb-1.5">
      <input
        ref={input}
        type="file"
        multiple
        hidden
        aria-label="Files to attach"
        onChange={(event) => {
          onFiles([...(event.target.files ?? [])]);
          // Reset, so that a removed file can be selected again.
          event.target.value = '';
        }}
      />
      <IconButton label="Attach files" icon="attach" disabled={state.editing} onClick={() => input.current?.click()} />
      <ModelPicker shown={model.shown} changed={model.picked !== null} open={modelsOpen} onOpen={onModels} onPick={model.choose} />
      <ModeChoice />
      <div className="ms-auto flex shrink-0 items-center gap-1">
        <SendButton {...state} onStop={onStop} />
      </div>
    </div>
  );
}
