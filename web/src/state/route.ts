/** Where the page is: kept in the fragment, so that Back works and a link can be kept. */

import { useSyncExternalStore } from 'react';

export interface Route {
  session: string | null;
  /** A message to land on. */
  message: string | null;
  /** A session shown beside it. */
  beside: string | null;
}

export function parseRoute(hash: string): Route {
  const found = /^#\/s\/([\w-]+)(?:\/m\/([^?/]+))?(?:\?beside=([\w-]+))?$/.exec(hash);
  return {
    session: found?.[1] ?? null,
    message: decoded(found?.[2]),
    beside: found?.[3] ?? null,
  };
}

/** What somebody wrote by hand may be no such thing; then it names nothing. */
function decoded(text: string | undefined): string | null {
  try {
    return text ? decodeURIComponent(text) : null;
  } catch {
    return null;
  }
}

export function formatRoute(route: Partial<Route>): string {
  if (!route.session) return '#/';
  const message = route.message ? `/m/${encodeURIComponent(route.message)}` : '';
  return `#/s/${route.session}${message}${route.beside ? `?beside=${route.beside}` : ''}`;
}

export function goTo(route: Partial<Route>, replace = false): void {
  const target = formatRoute(route);
  if (window.location.hash === target) return;
  if (replace) {
    window.history.replaceState(null, '', target);
    window.dispatchEvent(new HashChangeEvent('hashchange'));
  } else {
    window.location.hash = target;
  }
}

export function useRoute(): Route {
  const hash = useSyncExternalStore(
    (listener) => {
      window.addEventListener('hashchange', listener);
      return () => window.removeEventListener('hashchange', listener);
    },
    () => window.location.hash,
  );
  return parseRoute(hash);
}
