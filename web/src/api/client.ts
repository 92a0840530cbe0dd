/** The server's client and base path. */

export { type Answer, type Asked, Client, isProblem, type Operation } from '@clew/client';

/** Return the path that the page is mounted at; every API URL starts with it. */
export function mountPath(base: string = document.baseURI): string {
  return new URL('.', base).pathname.replace(/\/$/, '');
}
