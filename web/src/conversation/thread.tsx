export function Thread() {
  return null;
}
