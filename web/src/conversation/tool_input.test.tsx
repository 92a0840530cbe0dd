import { render } from '@testing-library/react';
import { expect, test } from 'vitest';
import { visibleItems } from './collapsed_reads';
import { ThreadState, ThreadStateContext } from './thread_state';
import { ToolInput } from './tool_input';

test.each(['constructor', '__proto__', 'toString'])('a tool that is called %s is shown like any unknown tool', (name) => {
  const part = { type: 'dynamic-tool', toolName: name, toolCallId: 'c1', state: 'output-available', input: { path: 'a' }, output: '' };
  const { container } = render(
    <ThreadStateContext value={new ThreadState()}>
      <ToolInput id="x" part={part} />
    </ThreadStateContext>,
  );
  expect(container.textContent).toContain('"path": "a"');
  const parts = [part, part, part];
  expect(visibleItems([{ number: 1, parts }] as never).map(({ kind }) => kind)).toEqual(['part', 'part', 'part']);
});
