/** The edge of the list of sessions: dragged, or moved by arrows; a double click gives it its usual width. */

import type { KeyboardEvent, PointerEvent } from 'react';
import { useStore } from '../state/store';
import { fittingWidth, view, WIDTH } from '../state/view';

const STEP = 16;

export function Resizer() {
  const width = useStore(view, (state) => fittingWidth(state.width));
  const set = (wanted: number) => view.set({ width: fittingWidth(wanted) });
  const onKeyDown = (event: KeyboardEvent) => {
    const wanted = { ArrowLeft: width - STEP, ArrowRight: width + STEP, Home: WIDTH.least, End: WIDTH.most, Enter: WIDTH.usual }[event.key];
    if (wanted === undefined) return;
    event.preventDefault();
    set(wanted);
  };
  const onPointerDown = (event: PointerEvent<HTMLDivElement>) => {
    event.preventDefault();
    const edge = event.currentTarget;
    edge.setPointerCapture(event.pointerId);
    const move = (at: globalThis.PointerEvent) => set(at.clientX);
    edge.addEventListener('pointermove', move);
    const end = () => edge.removeEventListener('pointermove', move);
    edge.addEventListener('pointerup', end, { once: true });
    edge.addEventListener('pointercancel', end, { once: true });
  };
  return (
    <div
      role="separator"
      aria-orientation="vertical"
      aria-label="Width of the list"
      aria-valuenow={width}
      aria-valuemin={WIDTH.least}
      aria-valuemax={WIDTH.most}
      tabIndex={0}
      onKeyDown={onKeyDown}
      onPointerDown={onPointerDown}
      onDoubleClick={() => set(WIDTH.usual)}
      className="absolute inset-y-0 right-0 z-30 w-1.5 cursor-col-resize touch-none hover:bg-thread-soft focus-visible:bg-thread-soft max-lg:hidden"
    />
  );
}
