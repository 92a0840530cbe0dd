import { expect, test } from 'vitest';
import { tabTitle } from './tab_title';

test('the tab shows the state, and that a turn ended while it was hidden', () => {
  expect(tabTitle('Menu', 'idle', false)).toBe('Menu · clew');
  expect(tabTitle('Menu', 'busy', false)).toBe('… Menu · clew');
  expect(tabTitle('Menu', 'waiting', false)).toBe('❗ Menu · clew');
  expect(tabTitle('Menu', 'error', true)).toBe('✗ Menu · clew');
  expect(tabTitle('Menu', 'idle', true)).toBe('✓ Menu · clew');
  expect(tabTitle(null, 'busy', false)).toBe('… clew');
});
