/** The token: moved from the URL fragment to this browser's storage. */

const KEY = 'clew.token';

export function loadToken(location: Location = window.location, storage: Storage = window.localStorage): string | null {
  const found = /^#token=([^&]+)/.exec(location.hash);
  if (found?.[1]) {
    saveToken(decoded(found[1]), storage);
    window.history.replaceState(null, '', location.pathname + location.search);
  }
  return storage.getItem(KEY);
}

/** Decode the token; leave malformed encoding for the server to reject. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function saveToken(token: string, storage: Storage = window.localStorage): void {
  storage.setItem(KEY, token.trim());
}

export function clearToken(storage: Storage = window.localStorage): void {
  storage.removeItem(KEY);
}
