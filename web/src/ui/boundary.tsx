/** A wall around what is drawn: what cannot be drawn behind it is said in its place, and all else stays. */

import { Component, type ReactNode } from 'react';

interface Props {
  /** What cannot be shown, at the beginning of a sentence. */
  what: string;
  /** What was drawn: something else is tried anew. */
  of?: unknown;
  children: ReactNode;
}

export class Boundary extends Component<Props, { failed: boolean }> {
  state = { failed: false };

  static getDerivedStateFromError(): { failed: boolean } {
    return { failed: true };
  }

  componentDidUpdate(before: Props): void {
    if (this.state.failed && before.of !== this.props.of) this.setState({ failed: false });
  }

  render(): ReactNode {
    if (!this.state.failed) return this.props.children;
    return (
      <p role="alert" className="my-3 rounded border border-line px-3 py-2 text-sm">
        {this.props.what} cannot be shown. Nothing of it is lost: it is stored, and an export has it.{' '}
        <button type="button" className="underline" onClick={() => location.reload()}>
          Load the page again
        </button>
      </p>
    );
  }
}
