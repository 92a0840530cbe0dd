export function Composer(_: { main: boolean }) {
  return null;
}
