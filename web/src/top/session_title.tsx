/** The title of the session; a click or F2 edits it in place. */

import { useRef, useState } from 'react';
import { RenameField } from '../sidebar/rename_field';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { useSession } from './use_session';

interface Props {
  /** Shown without a title. */
  fallback?: string;
}

export function SessionTitle({ fallback = 'Untitled' }: Props) {
  const conversation = useThis();
  const title = useSession()?.title ?? null;
  const loaded = useStore(conversation.store, (state) => state.loaded);
  const [renaming, setRenaming] = useState(false);
  const renamed = useRef(false);
  if (renaming) {
    return (
      <RenameField
        title={title}
        className="text-base font-semibold"
        onDone={(name) => {
          renamed.current = true;
          setRenaming(false);
          if (name !== null) void conversation.patch({ title: name }).catch(() => undefined);
        }}
      />
    );
  }
  return (
    <h1 className="flex min-w-0">
      <button
        ref={(button) => {
          // Restore the focus after editing, unless the user has moved on.
          if (!button || !renamed.current) return;
          renamed.current = false;
          if (document.activeElement === document.body) button.focus();
        }}
        type="button"
        dir="auto"
        title={title ? `${title}\n(click or F2 to rename)` : 'Click or F2 to rename'}
        onClick={() => setRenaming(true)}
        onKeyDown={(event) => event.key === 'F2' && setRenaming(true)}
        className={`relative min-w-0 truncate rounded text-start font-semibold ${title ? '' : 'text-quiet'}`}
      >
        {title || (loaded ? fallback : '…')}
        <span className="sr-only">, rename</span>
      </button>
    </h1>
  );
}
