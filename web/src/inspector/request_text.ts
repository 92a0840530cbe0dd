/** Formats a request as text, to be read and compared line by line. */

import type { Message as StoredMessage, RequestReport } from '@clew/client';
import { outputText, type ToolPart } from '../conversation/tool_part';

type Part = Record<string, unknown>;

export function messageText(message: StoredMessage): string {
  return (message.parts as unknown as Part[])
    .map((part) => {
      const type = String(part.type);
      if (type === 'text') return String(part.text);
      if (type === 'reasoning') return `[reasoning]\n${String(part.text)}`;
      if (type === 'step-start') return '';
      if (type === 'file') return `[file ${String(part.filename ?? '')} ${String(part.mediaType)}]`;
      if (type.startsWith('tool-') || type === 'dynamic-tool') {
        const name = type === 'dynamic-tool' ? String(part.toolName) : type.slice(5);
        const output = part.errorText ?? (part.output === undefined ? undefined : outputText(part as unknown as ToolPart));
        return `[${name}] ${asText(part.input)}${output === undefined ? '' : `\n→ ${asText(output)}`}`;
      }
      return asText(part);
    })
    .filter(Boolean)
    .join('\n\n');
}

/** Return the sections in order; sections of two requests are matched by name. */
export function requestSections(request: RequestReport): { name: string; text: string }[] {
  return [
    ...request.prompt.map((section) => ({ name: `Prompt: ${section.name}`, text: section.text })),
    { name: 'Tools', text: request.tools.map((tool) => `${tool.name}\n${tool.description}`).join('\n\n') },
    { name: 'Messages', text: request.messages.map((message) => `— ${message.role}\n${messageText(message)}`).join('\n\n') },
  ];
}

function asText(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value, null, 2) ?? '');
}
