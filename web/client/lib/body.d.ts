/** Reads a response body up to a size limit. */
export declare function readBody(response: Response, maxBytes?: number): Promise<Blob>;
