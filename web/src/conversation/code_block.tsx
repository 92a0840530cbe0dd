/** A block of code: its language, a button to copy it, and lines that scroll inside it. */

import { Children, isValidElement, type ReactNode } from 'react';
import { CopyButton } from './copy_button';

export function CodeBlock({ children }: { children?: ReactNode }) {
  const code = textIn(children).replace(/\n$/, '');
  const language = languageIn(children);
  return (
    <div dir="ltr" className="group/code relative my-2.5 overflow-hidden rounded-lg border border-line bg-panel text-left">
      <div className="flex h-8 items-center justify-between border-b border-line pr-0.5 pl-3">
        <span className="truncate font-mono text-xs text-quiet">{language || 'text'}</span>
        <CopyButton text={() => code} label="Copy the code" className="hover:bg-raised" />
      </div>
      <pre tabIndex={0} aria-label={`Code${language ? `, ${language}` : ''}`} role="group" className="overflow-x-auto px-3 py-2 font-mono text-[13px] leading-normal">
        <code>{code}</code>
      </pre>
    </div>
  );
}

function textIn(node: ReactNode): string {
  if (typeof node === 'string' || typeof node === 'number') return String(node);
  if (Array.isArray(node)) return node.map(textIn).join('');
  return isValidElement<{ children?: ReactNode }>(node) ? textIn(node.props.children) : '';
}

function languageIn(children: ReactNode): string {
  const code = Children.toArray(children).find((child) => isValidElement<{ className?: string }>(child));
  const name = isValidElement<{ className?: string }>(code) ? code.props.className : undefined;
  return /language-([\w+#.-]+)/.exec(name ?? '')?.[1] ?? '';
}
