import { render } from '@testing-library/react';
import { expect, test } from 'vitest';
import { shownOf } from './looks';
import { Memory, MemoryContext } from './memory';
import { ToolInput } from './tool_input';

test.each(['constructor', '__proto__', 'toString'])('a tool that is called %s is shown like any other that is not known', (name) => {
  const part = { type: 'dynamic-tool', toolName: name, toolCallId: 'c1', state: 'output-available', input: { path: 'a' }, output: '' };
  const { container } = render(
    <MemoryContext value={new Memory()}>
      <ToolInput id="x" part={part} />
    </MemoryContext>,
  );
  expect(container.textContent).toContain('"path": "a"');
  const parts = [part, part, part];
  expect(shownOf([{ number: 1, parts }] as never).map(({ kind }) => kind)).toEqual(['part', 'part', 'part']);
});
