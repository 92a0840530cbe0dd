/**
 * Markdown written by a model, streaming or complete. It is untrusted: HTML is shown as text, no resources are loaded, and
 * only web and mail links can be followed.
 */

import { type CSSProperties, memo, type ReactNode } from 'react';
import remarkMath from 'remark-math';
import { defaultRemarkPlugins, Streamdown, type Components, type StreamdownProps } from 'streamdown';
import { Maths } from '../code/maths';
import { CodeBlock } from './code_block';
import { LongBlock } from './long_block';
import { safeUrl } from './safe_url';
import './thread.css';

function Link({ href, children }: { href?: string; children?: ReactNode }) {
  const safe = safeUrl(href);
  if (safe === null) return <span>{children}</span>;
  return (
    <a href={safe} target="_blank" rel="noopener noreferrer" className="text-thread underline decoration-from-font underline-offset-2">
      {children}
    </a>
  );
}

/** Images are never loaded; they become links. */
function ImageLink({ src, alt }: { src?: unknown; alt?: string }) {
  const name = alt?.trim() || 'image';
  return safeUrl(src) === null ? <span className="text-quiet">[{name}]</span> : <Link href={src as string}>{`[${name}]`}</Link>;
}

function InlineCode({ children, className }: { children?: ReactNode; className?: string }) {
  if (className?.includes('math-inline') && typeof children === 'string') return <Maths tex={children} />;
  return (
    <code dir="ltr" className="rounded bg-panel px-1 py-0.5 font-mono text-[0.88em]">
      {children}
    </code>
  );
}

function Table({ children }: { children?: ReactNode }) {
  return (
    <div tabIndex={0} role="group" aria-label="Table" className="my-2.5 overflow-x-auto rounded-lg border border-line">
      <table className="w-full border-collapse text-sm">{children}</table>
    </div>
  );
}

function Tick({ checked }: { checked?: boolean }) {
  return (
    <span role="img" aria-label={checked ? 'done' : 'to do'} className="mr-1">
      {checked ? '☑' : '☐'}
    </span>
  );
}

/** Classes of column alignments. */
const ALIGNED: Record<string, string> = { left: 'clew-left', center: 'clew-center', right: 'clew-right' };

/** Create a component whose text direction follows its content. */
function withAutoDirection(Tag: 'p' | 'ul' | 'ol' | 'blockquote' | 'td' | 'th' | 'h1' | 'h2' | 'h3' | 'h4' | 'h5' | 'h6') {
  return function AutoDirection({ children, start, style }: { children?: ReactNode; start?: number; style?: CSSProperties }) {
    return Tag === 'ol' ? (
      <ol dir="auto" start={start}>
        {children}
      </ol>
    ) : (
      <Tag dir="auto" className={ALIGNED[style?.textAlign ?? '']}>
        {children}
      </Tag>
    );
  };
}

const AUTO_DIRECTION_TAGS = ['p', 'ul', 'ol', 'blockquote', 'td', 'th', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6'] as const;
const PLAIN = ['li', 'hr', 'strong', 'section', 'sub', 'sup', 'thead', 'tbody', 'tr'] as const;
const COMPONENTS = {
  a: Link,
  img: ImageLink,
  code: InlineCode,
  pre: CodeBlock,
  table: Table,
  input: Tick,
  ...Object.fromEntries(AUTO_DIRECTION_TAGS.map((tag) => [tag, withAutoDirection(tag)])),
  ...Object.fromEntries(PLAIN.map((tag) => [tag, tag])),
} as unknown as Components;
// Without a plugin that parses HTML there is none to sanitize.
const NO_PLUGINS: [] = [];
// A single tilde is plain text, as it is while streaming; a reloaded message must look the same.
// A single dollar is money; formulas use two.
const REMARK_PLUGINS = [
  ...Object.values({ ...defaultRemarkPlugins, gfm: [[defaultRemarkPlugins.gfm].flat()[0], { singleTilde: false }] }),
  [remarkMath, { singleDollarTextMath: false }],
] as StreamdownProps['remarkPlugins'];
const urlTransform = (url: string) => safeUrl(url) ?? '';

export const Markdown = memo(function Markdown({ text, streaming = false }: { text: string; streaming?: boolean }) {
  return (
    <Streamdown
      mode="streaming"
      parseIncompleteMarkdown={streaming}
      // Changing the class name forces a render when the text is complete; Streamdown does not compare `parseIncompleteMarkdown`.
      className={streaming ? 'clew-prose space-y-0 clew-writing' : 'clew-prose space-y-0'}
      components={COMPONENTS}
      BlockComponent={LongBlock}
      remarkPlugins={REMARK_PLUGINS}
      rehypePlugins={NO_PLUGINS}
      urlTransform={urlTransform}
      controls={false}
    >
      {text}
    </Streamdown>
  );
});
