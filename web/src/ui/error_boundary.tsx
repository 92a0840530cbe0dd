/** An error boundary: shows a message in place of a component that failed to render. */

import { Component, type ReactNode } from 'react';

interface Props {
  /** Name of the component, at the start of a sentence. */
  name: string;
  /** The rendered value; a change resets the error. */
  resetKey?: unknown;
  children: ReactNode;
}

export class ErrorBoundary extends Component<Props, { failed: boolean }> {
  state = { failed: false };

  static getDerivedStateFromError(): { failed: boolean } {
    return { failed: true };
  }

  componentDidUpdate(before: Props): void {
    if (this.state.failed && before.resetKey !== this.props.resetKey) this.setState({ failed: false });
  }

  render(): ReactNode {
    if (!this.state.failed) return this.props.children;
    return (
      <p role="alert" className="my-3 rounded border border-line px-3 py-2 text-sm">
        {this.props.name} could not be displayed. Nothing is lost: the data is on the server.{' '}
        <button type="button" className="underline" onClick={() => location.reload()}>
          Reload the page
        </button>
      </p>
    );
  }
}
