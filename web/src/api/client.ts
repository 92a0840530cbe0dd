/** The way to the server, and where that is. */

export { type Answer, type Asked, Client, isProblem, type Operation } from '@clew/client';

/** Where the page lies on its server, which may be below any path: what every address of the API begins with. */
export function mountPath(base: string = document.baseURI): string {
  return new URL('.', base).pathname.replace(/\/$/, '');
}
