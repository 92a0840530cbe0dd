/** The sidebar: new session, search, session list. */

import { useEffect, useRef, useState } from 'react';
import { startNewSession } from '../frame/shortcuts';
import { toggleList, view } from '../state/view';
import { Button, IconButton } from '../ui/button';
import { type ActivityMark, markActivity } from '../ui/user_activity';
import { ListFilters } from './list_filters';
import { SearchField } from './search_field';
import { RESULTS_ID, SearchResults } from './search_results';
import { LIST_ID, SessionList } from './session_list';
import { SidebarFooter } from './sidebar_footer';
import { useSearch } from './use_search';
import mark from '../clew.svg';

export function Sidebar() {
  const [text, setText] = useState('');
  const field = useRef<HTMLInputElement>(null);
  const { found, searching, more } = useSearch(text);
  const asking = text.trim() !== '';
  // Enter was pressed before the results arrived: open the first one then.
  const openWhenFound = useRef<ActivityMark | null>(null);
  useEffect(() => {
    const from = openWhenFound.current;
    if (!from || found?.query !== text.trim()) return;
    openWhenFound.current = null;
    if (from.idle()) down(true);
  }, [found]);

  const down = (open: boolean) => {
    if (open && found?.query !== text.trim()) {
      openWhenFound.current = markActivity();
      return;
    }
    const first = asking
      ? document.getElementById(RESULTS_ID)?.querySelector<HTMLElement>('a[data-hit]')
      : document.getElementById(LIST_ID)?.querySelector<HTMLElement>('a[tabindex="0"]');
    if (open) first?.click();
    else first?.focus();
  };
  const type = (value: string) => {
    openWhenFound.current = null;
    setText(value);
  };
  const clear = () => {
    setText('');
    field.current?.focus();
  };

  return (
    <div
      className="flex h-full flex-col"
      onKeyDown={(event) => {
        // Close the drawer of narrow screens; a dialog above it handles Escape itself.
        if (event.key === 'Escape' && !event.defaultPrevented && !document.querySelector('dialog[open]')) view.set({ sidebar: false });
      }}
    >
      <header className="flex items-center gap-2 px-3 pt-2.5 pb-2">
        <a href="#/" className="flex min-w-0 flex-1 items-center gap-2 rounded-md text-lg font-semibold tracking-tight">
          <img src={mark} alt="" className="size-5" />
          clew
        </a>
        <Button data-home icon="plus" title="New session (Ctrl J)" aria-keyshortcuts="Control+J Meta+J" onClick={startNewSession}>
          New session
        </Button>
        <IconButton label="Close the list" title="Close the list (Ctrl B)" icon="back" onClick={toggleList} />
      </header>
      <SearchField ref={field} text={text} onText={type} onDown={down} />
      {!asking && <ListFilters />}
      <div className="mt-1 min-h-0 flex-1 overflow-x-hidden overflow-y-auto overscroll-contain">
        {asking ? (
          <SearchResults found={found} searching={searching} more={more} field={field} onClear={clear} />
        ) : (
          <SessionList />
        )}
      </div>
      <SidebarFooter />
    </div>
  );
}
