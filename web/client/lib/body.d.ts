/** The body of an answer, as long as it is one that ends. */
export declare function readBody(response: Response, largest?: number): Promise<Blob>;
