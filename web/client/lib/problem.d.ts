/** The errors of the client: an error response with its stable code, no response, and an unexpected response. */
export declare class Problem extends Error {
    readonly status: number;
    readonly code: string;
    readonly body: Record<string, unknown>;
    constructor(status: number, code: string, detail: string, body?: Record<string, unknown>);
}
export declare class Unreachable extends Error {
    constructor(cause?: unknown);
}
/** The response did not come from a clew server of this version: from another program, or from a proxy in between. */
export declare class BadAnswer extends Error {
    constructor(detail: string);
}
export declare function isProblem(error: unknown, code: string): boolean;
/** Whether the server is unreachable, restarting or briefly overloaded. */
export declare function isTemporary(error: unknown): boolean;
/** Parse an error response. */
export declare function problemOf(response: Response, text: string): Problem;
