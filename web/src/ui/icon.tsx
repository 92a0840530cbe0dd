/** The icons of the page, inline. */

const PATHS = {
  plus: 'M12 5v14M5 12h14',
  close: 'M6 6l12 12M18 6L6 18',
  menu: 'M4 7h16M4 12h16M4 17h16',
  search: 'M11 4a7 7 0 100 14 7 7 0 000-14zM16 16l4.500 4.500',
  send: 'M5 12h13M12 5l7 7-7 7',
  stop: 'M7 7h10v10H7z',
  branch: 'M7 4v16M7 14c6 0 10-2 10-8M17 6V4M14 6l3-3 3 3',
  rewind: 'M9 8L5 12l4 4M5 12h9a5 5 0 010 10h-2',
  bell: 'M12 4a5 5 0 00-5 5c0 5-2 6-2 7h14c0-1-2-2-2-7a5 5 0 00-5-5zM10 19a2 2 0 004 0',
  bell_off: 'M7 9c0 5-2 6-2 7h11M17 13V9a5 5 0 00-8-4M10 19a2 2 0 004 0M4 4l16 16',
  wrap: 'M4 6h16M4 12h13a3 3 0 010 6h-4M15 15l-2 3 2 3M4 18h5',
  copy: 'M9 9h10v11H9zM5 15V4h10',
  edit: 'M4 20l1-4L16 5l3 3L8 19zM14 7l3 3',
  more: 'M6 12h.01M12 12h.01M18 12h.01',
  dots: 'M5 12a1 1 0 102 0 1 1 0 10-2 0zM11 12a1 1 0 102 0 1 1 0 10-2 0zM17 12a1 1 0 102 0 1 1 0 10-2 0z',
  chevron: 'M9 6l6 6-6 6',
  back: 'M15 6l-6 6 6 6',
  up: 'M6 15l6-6 6 6',
  down: 'M6 9l6 6 6-6',
  check: 'M5 13l4 4L19 7',
  warning: 'M12 4l9 16H3zM12 10v4M12 17h.01',
  archive: 'M4 5h16v4H4zM5 9v10h14V9M10 13h4',
  trash: 'M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13',
  attach: 'M18 8l-8 8a2.500 2.500 0 01-3.500-3.500l8-8a4 4 0 015.700 5.700l-8.200 8.200a6 6 0 01-8.500-8.500L11 2.500',
  panel: 'M4 5h16v14H4zM15 5v14',
  sidecar: 'M4 5h16v14H4zM12 5v14M14.500 9h3M14.500 12h3',
  compact: 'M12 3v6M9 6l3 3 3-3M12 21v-6M9 18l3-3 3 3M4 12h16',
  prune: 'M6 6l12 12M18 6L12 12M6 18a2 2 0 100-.01M18 18a2 2 0 100-.01',
  retry: 'M20 12a8 8 0 11-2.500-5.800M20 4v4h-4',
  sun: 'M12 8a4 4 0 100 8 4 4 0 000-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.500 1.500M17.500 17.500L19 19M5 19l1.500-1.500M17.500 6.500L19 5',
  moon: 'M20 14.500A8 8 0 019.500 4 8 8 0 1020 14.500z',
  auto: 'M12 4a8 8 0 100 16zM12 4a8 8 0 010 16',
  tool: 'M14.500 6.500a4 4 0 015-1l-3 3 2 2 3-3a4 4 0 01-5.500 5L8 20.500 3.500 16l8-8',
  thought: 'M12 4a7 7 0 00-4 12.700V20h8v-3.300A7 7 0 0012 4zM9.500 22h5',
  file: 'M6 3h8l4 4v14H6zM14 3v4h4',
  pin: 'M9 4h6l-1 6 3 3v2H7v-2l3-3zM12 15v6',
  sliders: 'M4 7h9M17 7h3M13 7a2 2 0 104 0 2 2 0 10-4 0M4 17h3M11 17h9M7 17a2 2 0 104 0 2 2 0 10-4 0',
  coins: 'M12 4a8 8 0 100 16 8 8 0 000-16zM14.500 9.500c-.5-1-1.300-1.500-2.500-1.500-1.500 0-2.500.8-2.500 2s1 1.700 2.500 2 2.500.8 2.500 2-1 2-2.500 2c-1.200 0-2-.5-2.500-1.500M12 6.500V8M12 16v1.500',
  clock: 'M12 4a8 8 0 100 16 8 8 0 000-16zM12 8v4l3 2',
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, className = 'size-4' }: { name: IconName; className?: string }) {
  return (
    <svg viewBox="0 0 24 24" className={`shrink-0 ${className}`} fill="none" stroke="currentColor" strokeWidth="1.8" strokeLinecap="round" strokeLinejoin="round" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
