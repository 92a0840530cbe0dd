/** One part of an answer. Unknown kinds are not shown. */

import type { FileUIPart } from 'ai';
import type { Part } from '../api/types';
import { Icon } from '../ui/icon';
import { Attachment } from './attachment';
import { Markdown } from './markdown';
import { Reasoning } from './reasoning';
import { safeUrl } from './safe_url';
import { ToolCard } from './tool_card';
import { asTool } from './tool_part';

interface Props {
  id: string;
  part: Part;
  live: boolean;
  over: boolean;
  pruned: boolean;
  past: boolean;
}

export function MessagePart({ id, part, live, over, pruned, past }: Props) {
  const tool = asTool(part);
  if (tool) return <ToolCard part={tool} live={live} over={over} pruned={pruned} past={past} />;
  switch (part.type) {
    case 'text':
      return part.text === '' ? null : <Markdown text={part.text} streaming={live && part.state === 'streaming'} />;
    case 'reasoning':
      return <Reasoning id={id} text={part.text} thinking={live && part.state === 'streaming'} />;
    case 'file':
      return (
        <div className="my-2">
          <Attachment part={part as FileUIPart} />
        </div>
      );
    case 'source-url':
      return <Source title={part.title ?? part.url} url={part.url} />;
    case 'source-document':
      return <Source title={part.title} />;
    default:
      return null;
  }
}

function Source({ title, url }: { title: string; url?: string }) {
  const safe = safeUrl(url);
  return (
    <div className="my-1 flex min-w-0 items-center gap-1.5 text-sm text-quiet">
      <Icon name="file" className="size-3.5" />
      {safe ? (
        <a href={safe} target="_blank" rel="noopener noreferrer" className="min-w-0 truncate text-thread underline underline-offset-2">
          {title}
        </a>
      ) : (
        <span className="min-w-0 truncate">{title}</span>
      )}
    </div>
  );
}
