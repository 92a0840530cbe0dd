/** Around one row: what cannot be drawn is said there, and takes nothing else of the page with it. */

import { Component, type ReactNode } from 'react';
import { failureIn } from '../api/problem';
import { SaidDetails } from '../ui/said_details';

interface Props {
  /** What is drawn: when it changes, it is tried again. */
  shown: unknown;
  children: ReactNode;
}

export class RowGuard extends Component<Props, { error: unknown; shown: unknown }> {
  override state = { error: null, shown: this.props.shown };

  static getDerivedStateFromError(error: unknown) {
    return { error };
  }

  static getDerivedStateFromProps({ shown }: Props, state: { shown: unknown }) {
    return shown === state.shown ? null : { error: null, shown };
  }

  override render() {
    const { error } = this.state;
    if (error === null) return this.props.children;
    return (
      <div className="flex flex-wrap items-baseline gap-x-2 py-2 text-sm text-bad">
        This message cannot be shown here; it is stored, and an export has it.
        <SaidDetails text={failureIn(error).said ?? String(error)} />
      </div>
    );
  }
}
