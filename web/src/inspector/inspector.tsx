export function Inspector(_: { id: string }) {
  return null;
}
