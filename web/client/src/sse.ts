/** Server-sent events read with fetch, since EventSource cannot send the token. */

/** The data of each event; `heard` is told of whatever comes, comments too. */
export async function* readEvents(body: ReadableStream<Uint8Array>, heard: () => void = () => undefined): AsyncGenerator<string> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      heard();
      rest += decoder.decode(value, { stream: true });
      const frames = rest.split(/\r?\n\r?\n/);
      rest = frames.pop() ?? '';
      for (const frame of frames) {
        const data = frame
          .split(/\r?\n/)
          .filter((line) => line.startsWith('data:'))
          .map((line) => line.slice(line.startsWith('data: ') ? 6 : 5));
        if (data.length) yield data.join('\n');
      }
    }
  } finally {
    // The reader may have ended by an error, which is already on its way to the caller.
    reader.cancel().catch(() => undefined);
  }
}
