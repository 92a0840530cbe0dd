/** The edge of the session list: drag it or use the arrow keys; a double click resets the width. */

import type { KeyboardEvent, PointerEvent } from 'react';
import { useStore } from '../state/store';
import { fittingWidth, view, WIDTH } from '../state/view';

const STEP = 16;

export function Resizer() {
  const width = useStore(view, (state) => fittingWidth(state.width));
  const set = (next: number) => view.set({ width: fittingWidth(next) });
  const onKeyDown = (event: KeyboardEvent) => {
    const next = { ArrowLeft: width - STEP, ArrowRight: width + STEP, Home: WIDTH.min, End: WIDTH.max, Enter: WIDTH.default }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    set(next);
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
      aria-label="Width of the session list"
      aria-valuenow={width}
      aria-valuemin={WIDTH.min}
      aria-valuemax={WIDTH.max}
      tabIndex={0}
      onKeyDown={onKeyDown}
      onPointerDown={onPointerDown}
      onDoubleClick={() => set(WIDTH.default)}
      className="absolute inset-y-0 right-0 z-30 w-1.5 cursor-col-resize touch-none hover:bg-thread-soft focus-visible:bg-thread-soft max-lg:hidden"
    />
  );
}
