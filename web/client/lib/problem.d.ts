/** What the server refused, with its stable code; the server that is not there; and a stream that broke off. */
export declare class Problem extends Error {
    readonly status: number;
    readonly code: string;
    readonly body: Record<string, unknown>;
    constructor(status: number, code: string, detail: string, body?: Record<string, unknown>);
}
export declare class Unreachable extends Error {
    constructor(cause?: unknown);
}
/** What answers is no clew server, or one of another version, or something in between spoke for it. */
export declare class BadAnswer extends Error {
    constructor(detail: string);
}
export declare function isProblem(error: unknown, code: string): boolean;
/** The problem in an answer that is none of the good ones. */
export declare function problemOf(response: Response, text: string): Problem;
