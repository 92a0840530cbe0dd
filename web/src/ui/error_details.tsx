/** The message of a provider or program, collapsed. */

export function ErrorDetails({ text }: { text: string }) {
  return (
    <details className="min-w-0 basis-full text-xs">
      <summary className="w-fit cursor-pointer rounded px-1 underline underline-offset-2">Details</summary>
      <pre dir="auto" tabIndex={0} aria-label="Details" role="group" className="mt-1 max-h-48 overflow-auto rounded-md bg-paper px-2.5 py-2 font-mono break-words whitespace-pre-wrap text-ink">
        {text}
      </pre>
    </details>
  );
}
