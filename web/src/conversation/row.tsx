/** One item of the timeline, rendered again only when it changes. */

import { memo } from 'react';
import type { TimelineItem } from '../state/timeline';
import { AssistantMessage } from './assistant_message';
import { RewoundBanner } from './rewound_banner';
import { SummaryLine } from './summary_line';
import { UserMessage } from './user_message';
import { ErrorBoundary } from '../ui/error_boundary';

interface Props {
  item: TimelineItem;
  live: boolean;
  last: boolean;
}

export const Row = memo(
  function Row({ item, live, last }: Props) {
    // The list disables pointer events while scrolling; without this a press right after scrolling would be lost.
    return (
      <div data-row={item.key} className="pointer-events-auto mx-auto w-full max-w-3xl px-4">
        {item.kind === 'message' && item.divided && <hr aria-hidden="true" className="mt-3 mb-2 border-line" />}
        <ErrorBoundary name="This message" resetKey={item.kind === 'rewound' ? item.group : item.message}>
          {item.kind === 'summary' && <SummaryLine id={item.key} message={item.message} />}
          {item.kind === 'rewound' && <RewoundBanner id={item.key} group={item.group} />}
          {item.kind === 'message' &&
            (item.message.role === 'user' ? <UserMessage message={item.message} /> : <AssistantMessage message={item.message} live={live} last={last} />)}
        </ErrorBoundary>
      </div>
    );
  },
  (before, after) => before.live === after.live && before.last === after.last && sameItem(before.item, after.item),
);

function sameItem(before: TimelineItem, after: TimelineItem): boolean {
  if (before.key !== after.key || before.kind !== after.kind) return false;
  if (before.kind === 'rewound') return after.kind === 'rewound' && before.group === after.group;
  if (before.kind === 'message' && after.kind === 'message' && before.divided !== after.divided) return false;
  return after.kind !== 'rewound' && before.message === after.message;
}
