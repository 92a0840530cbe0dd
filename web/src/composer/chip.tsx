/** A removable chip. */

import { Icon, type IconName } from '../ui/icon';

interface Props {
  label: string;
  detail?: string;
  icon?: IconName;
  /** Label of the remove button. */
  remove: string;
  onRemove: () => void;
}

export function Chip({ label, detail, icon, remove, onRemove }: Props) {
  return (
    <li className="inline-flex max-w-60 list-none items-center gap-1 rounded-full border border-line bg-panel ps-2.5 text-xs">
      {icon && <Icon name={icon} className="size-3.5 text-quiet" />}
      <bdi dir="auto" className="min-w-0 truncate" title={label}>
        {label}
      </bdi>
      {detail && <span className="shrink-0 whitespace-nowrap text-quiet">{detail}</span>}
      <button
        type="button"
        aria-label={`${remove}: ${label}`}
        title={remove}
        onClick={onRemove}
        className="inline-flex size-6 shrink-0 items-center justify-center rounded-full text-quiet hover:bg-raised hover:text-ink"
      >
        <Icon name="close" className="size-3" />
      </button>
    </li>
  );
}
