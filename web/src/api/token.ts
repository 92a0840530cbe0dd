/** The token: taken from the fragment once, kept in this browser's storage, gone from the address. */

const KEY = 'clew.token';

export function takeToken(location: Location = window.location, storage: Storage = window.localStorage): string | null {
  const found = /^#token=([^&]+)/.exec(location.hash);
  if (found?.[1]) {
    keepToken(decoded(found[1]), storage);
    window.history.replaceState(null, '', location.pathname + location.search);
  }
  return storage.getItem(KEY);
}

/** What is no encoding is taken as it stands; the server will refuse it. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function keepToken(token: string, storage: Storage = window.localStorage): void {
  storage.setItem(KEY, token.trim());
}

export function forgetToken(storage: Storage = window.localStorage): void {
  storage.removeItem(KEY);
}
