/** A code block: its language, buttons to wrap and copy it, and scrolling lines. */

import { Children, isValidElement, type ReactNode, useMemo } from 'react';
import { HighlightedCode } from '../code/highlighted_code';
import { Diagram } from '../code/diagram';
import { readDiff } from '../code/unified_diff';
import { useWrapping } from '../code/wrapping';
import { Maths } from '../code/maths';
import { DiffLines } from '../ui/diff_lines';
import { Icon } from '../ui/icon';
import { CopyButton } from './copy_button';

export function CodeBlock({ children }: { children?: ReactNode }) {
  const code = textIn(children).replace(/\n$/, '');
  const language = languageIn(children);
  if (language === 'math') return <Maths tex={code} display />;
  if (language === 'mermaid') return <Diagram code={code} fallback={<Listing code={code} language={language} />} />;
  return <Listing code={code} language={language} />;
}

function Listing({ code, language }: { code: string; language: string }) {
  const [wraps, toggle] = useWrapping();
  const diff = useMemo(() => (language === 'diff' || language === 'patch' ? readDiff(code) : null), [language, code]);
  return (
    <div dir="ltr" className="group/code relative my-2.5 overflow-hidden rounded-lg border border-line bg-panel text-left">
      <div className="flex h-8 items-center gap-0.5 border-b border-line pr-0.5 pl-3">
        <span className="mr-1.5 truncate font-mono text-xs text-quiet">{language || 'text'}</span>
        {diff && <ChangeCounts added={diff.added} removed={diff.removed} />}
        <span className="flex-1" />
        {!diff && (
          <button
            type="button"
            aria-pressed={wraps}
            aria-label="Wrap long lines"
            title="Wrap long lines"
            onClick={toggle}
            className={`inline-flex size-7 shrink-0 items-center justify-center rounded-md hover:bg-raised hover:text-ink ${wraps ? 'text-thread' : 'text-quiet'}`}
          >
            <Icon name="wrap" className="size-3.5" />
          </button>
        )}
        <CopyButton text={() => code} label="Copy code" className="hover:bg-raised" />
      </div>
      {diff ? (
        <DiffLines lines={diff.lines} label="Diff" framed />
      ) : (
        <pre
          tabIndex={0}
          aria-label={`Code${language ? `, ${language}` : ''}`}
          role="group"
          className={`overflow-x-auto px-3 py-2 font-mono text-[13px] leading-normal ${wraps ? 'whitespace-pre-wrap [overflow-wrap:anywhere]' : ''}`}
        >
          <code>
            <HighlightedCode language={language} code={code} />
          </code>
        </pre>
      )}
    </div>
  );
}

export function ChangeCounts({ added, removed }: { added: number; removed: number }) {
  return (
    <span className="shrink-0 font-mono text-xs">
      <span className="text-good">+{added}</span> <span className="text-bad">−{removed}</span>
    </span>
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
  return /language-([\w+#.-]+)/.exec(name ?? '')?.[1]?.toLowerCase() ?? '';
}
