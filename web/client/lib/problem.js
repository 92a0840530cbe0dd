/** What the server refused, with its stable code; the server that is not there; and a stream that broke off. */
export class Problem extends Error {
    status;
    code;
    body;
    constructor(status, code, detail, body = {}) {
        super(detail);
        this.status = status;
        this.code = code;
        this.body = body;
        this.name = 'Problem';
    }
}
export class Unreachable extends Error {
    constructor(cause) {
        super('the server cannot be reached');
        this.name = 'Unreachable';
        this.cause = cause;
    }
}
/** What answers is no clew server, or one of another version, or something in between spoke for it. */
export class BadAnswer extends Error {
    constructor(detail) {
        super(`what answers is no clew server, or one of another version: ${detail}`);
        this.name = 'BadAnswer';
    }
}
export function isProblem(error, code) {
    return error instanceof Problem && error.code === code;
}
/** The problem in an answer that is none of the good ones. */
export function problemOf(response, text) {
    let body = {};
    try {
        const parsed = JSON.parse(text);
        if (parsed && typeof parsed === 'object')
            body = parsed;
    }
    catch {
        // A proxy answers with a page of its own; the status says enough.
    }
    const detail = typeof body.detail === 'string' ? body.detail : `the server answered ${response.status}`;
    const code = typeof body.code === 'string' ? body.code : `http_${response.status}`;
    return new Problem(response.status, code, detail, body);
}
