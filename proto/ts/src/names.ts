/** The response headers of the server, as proto/arbe/v1/names.go defines them. */
export const nextHeader = "Arbe-Next";
export const reasonHeader = "Arbe-Reason";
export const referenceHeader = "Arbe-Reference";
export const requestHeader = "X-Request-Id";
