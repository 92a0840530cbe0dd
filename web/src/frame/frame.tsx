/** The page layout: sessions on the left, the conversation in the middle, the inspector on the right. */

import { type CSSProperties, lazy, Suspense, useEffect, useMemo, useRef } from 'react';
import { Inspector } from '../inspector/inspector';
import { Palette } from '../palette/palette';
import { Sidebar } from '../sidebar/sidebar';
import { useHost } from '../state/host';
import { goTo, useRoute } from '../state/route';
import { useStore } from '../state/store';
import { closeDialog, fittingWidth, view } from '../state/view';
import { ErrorBoundary } from '../ui/error_boundary';
import { Banner } from './banner';
import { useDrawerFocus } from './drawer_focus';
import { useRestoreFocus } from './restore_focus';
import { Landing } from './landing';
import { Pane } from './pane';
import { Resizer } from './resizer';
import { useShortcuts } from './shortcuts';
import { useNotifications } from './notifications';
import { useTabTitle } from './tab_title';
import { useTypeAnywhere } from './type_anywhere';

// Loaded on first use.
const Dialogs = lazy(() => import('./dialogs').then((module) => ({ default: module.Dialogs })));

export function Frame() {
  const host = useHost();
  const route = useRoute();
  const sidebar = useStore(view, (state) => state.sidebar);
  const collapsed = useStore(view, (state) => state.collapsed);
  const width = useStore(view, (state) => fittingWidth(state.width));
  const dialog = useStore(view, (state) => state.dialog);
  const inspector = useStore(view, (state) => state.inspector);
  const sessions = useStore(host.store, (state) => state.sessions);
  const session = useMemo(() => sessions.find((candidate) => candidate.id === route.session), [sessions, route.session]);
  const drawer = useRef<HTMLElement>(null);
  useShortcuts();
  useRestoreFocus();
  useTypeAnywhere();
  useDrawerFocus(drawer, sidebar);

  useTabTitle(session);
  useNotifications();
  useEffect(() => view.set({ sidebar: false, turn: null, against: null, compared: null }), [route.session]);

  return (
    <div className="flex h-dvh flex-col">
      <Banner />
      <div className="relative flex min-h-0 flex-1">
        <aside
          ref={drawer}
          aria-label="Sessions"
          style={{ '--list': `${width}px` } as CSSProperties}
          className={`relative z-20 shrink-0 border-r border-line bg-panel max-lg:absolute max-lg:inset-y-0 max-lg:left-0 max-lg:w-72 max-lg:shadow-xl lg:w-(--list) ${sidebar ? '' : 'max-lg:hidden'} ${collapsed ? 'lg:hidden' : ''}`}
        >
          <ErrorBoundary name="The list of sessions" resetKey={route.session}>
            <Sidebar />
          </ErrorBoundary>
          <Resizer />
        </aside>
        {sidebar && (
          <button type="button" aria-label="Close the list of sessions" className="absolute inset-0 z-10 bg-shade lg:hidden" onClick={() => view.set({ sidebar: false })} />
        )}
        {route.session ? (
          <>
            <Pane key={route.session} id={route.session} message={route.message} main />
            {route.side && (
              <Pane key={`side ${route.side}`} id={route.side} message={null} onClose={() => goTo({ session: route.session })} />
            )}
          </>
        ) : (
          <Landing />
        )}
        {inspector && route.session && (
          <aside aria-label="Inspector" className="z-20 w-96 shrink-0 border-l border-line bg-panel max-xl:w-80 max-md:absolute max-md:inset-y-0 max-md:right-0 max-md:w-full">
            <ErrorBoundary name="The inspector" resetKey={route.session}>
              <Inspector id={route.session} />
            </ErrorBoundary>
          </aside>
        )}
      </div>
      {/* The palette is not lazy: the user types into it immediately. */}
      <ErrorBoundary name="This dialog" resetKey={dialog}>
        {dialog === 'palette' && <Palette onClose={closeDialog} />}
        {dialog && dialog !== 'palette' && (
          <Suspense>
            <Dialogs dialog={dialog} />
          </Suspense>
        )}
      </ErrorBoundary>
    </div>
  );
}
