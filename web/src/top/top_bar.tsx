export function TopBar(_: { main: boolean; onClose?: () => void }) {
  return null;
}
