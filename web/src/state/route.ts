/** The route, stored in the URL fragment, so that Back and links work. */

import { useSyncExternalStore } from 'react';

export interface Route {
  session: string | null;
  /** A message to scroll to. */
  message: string | null;
  /** A session shown in the side pane. */
  side: string | null;
}

export function parseRoute(hash: string): Route {
  const found = /^#\/s\/([\w-]+)(?:\/m\/([^?/]+))?(?:\?beside=([\w-]+))?$/.exec(hash);
  return {
    session: found?.[1] ?? null,
    message: decoded(found?.[2]),
    side: found?.[3] ?? null,
  };
}

/** Decode a part of the fragment; ignore malformed encoding. */
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
  return `#/s/${route.session}${message}${route.side ? `?beside=${route.side}` : ''}`;
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
