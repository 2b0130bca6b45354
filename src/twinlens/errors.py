"""The one error tree.

    TwinlensError                      status  code
    ├── InvalidRequest                 400     invalid_request
    │   ├── InvalidField               400     invalid_field
    │   ├── UnsupportedField           400     unsupported_field
    │   ├── NotHere                    400     not_supported
    │   ├── InvalidSchema              400     invalid_json_schema
    │   ├── ContextLengthExceeded      400     context_length_exceeded
    │   ├── OverTokenLimit             400     over_token_limit
    │   ├── TooManyImages              400     too_many_images
    │   ├── FileQuotaExceeded          400     file_quota_exceeded
    │   └── ImageError                 400     invalid_image
    │       ├── InvalidBase64          400     invalid_base64
    │       ├── UnsupportedImageFormat 400     unsupported_image_format
    │       ├── ImageTooLarge          400     image_too_large
    │       │   └── TooManyBytes       400     image_too_large
    │       ├── ImageAspectRatio       400     image_aspect_ratio
    │       ├── ImageUrlNotAllowed     400     image_url_not_allowed
    │       ├── ImageFetchFailed       400     image_fetch_failed
    │       ├── ImageFetchTimeout      400     image_fetch_timeout
    │       ├── PdfInvalid             400     pdf_invalid
    │       ├── PdfEncrypted           400     pdf_encrypted
    │       │   └── PdfBadPassword     400     pdf_bad_password
    │       ├── PdfTimeout             400     pdf_timeout
    │       ├── TooManyPages           400     too_many_pages
    │       └── NoSuchPage             400     no_such_page
    ├── Unauthorized                   401     invalid_api_key
    ├── Forbidden                      403     insufficient_scope
    ├── HostNotAllowed                 403     host_not_allowed
    ├── OriginNotAllowed               403     origin_not_allowed
    ├── NotFound                       404     not_found
    │   ├── ModelNotFound              404     model_not_found
    │   ├── TaskNotFound               404     task_not_found
    │   └── FileNotThere               404     file_not_found
    ├── MethodNotAllowed               405     method_not_allowed
    ├── BodyTooSlow                    408     body_too_slow
    ├── BodyTooLarge                   413     body_too_large
    ├── UnsupportedMediaType           415     unsupported_media_type
    ├── RateLimited                    429     rate_limit_exceeded
    │   └── LongPromptsPaused          429     long_prompts_paused
    ├── HeadersTooLarge                431     headers_too_large
    ├── ServerError                    500     internal_error
    │   ├── AnswerError                502     invalid_answer
    │   │   ├── AnswerStalled          502     structured_output_stalled
    │   │   ├── AnswerTruncated        502     output_truncated
    │   │   └── FinishError            502     finishing_failed
    │   ├── AuditError                 507     audit_unwritable
    │   ├── StoreError                 507     store_unusable
    │   └── FileStorageError           507     file_storage_error
    ├── Unavailable                    503     unavailable
    │   ├── Overloaded                 503     overloaded
    │   ├── Draining                   503     draining
    │   ├── EngineUnavailable          503     engine_unavailable
    │   │   └── EngineFailing          503     engine_failing
    │   └── StoreMiss                  503     store_miss
    ├── DeadlineExceeded               504     deadline_exceeded
    └── OperatorError                  exit 2  operator_error     (never sent to a client)
        ├── SettingsError              exit 2  settings_error
        ├── TaskError                  exit 2  task_error
        ├── BatchError                 exit 2  batch_error
        └── ModelError                 exit 2  model_error

Every error is an answer: `status` and `code` for machines, `message` for people, `cure` for whoever has to act,
`param` naming the part of the request, `retry_after` in seconds where trying again is the cure. A message never
holds object reprs, addresses, file paths of the server, or text of a foreign library that was not read first.
The page docs/errors.md is generated from this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence


class TwinlensError(Exception):
    """Root of the tree. Class attributes are the contract of each kind; instances add the particulars."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    type: ClassVar[str] = "server_error"
    retryable: ClassVar[bool] = False
    cure: str = "Look at the server's log for the request id."

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        cure: str | None = None,
        retry_after: float | None = None,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after = retry_after
        self.headers = tuple(headers)  # for the answer that it becomes
        self.more: dict[str, Any] = {}  # what was finished before it; content, which is never logged
        if cure is not None:
            self.cure = cure

    def body(self) -> dict[str, Any]:
        """The error in OpenAI's shape. `message` ends with the cure, because SDKs show only the message."""
        told: dict[str, Any] = {"error": self.detail()}
        return told | {"twinlens": self.more} if self.more else told

    def detail(self) -> dict[str, Any]:
        """The inner part of the body."""
        return {
            "message": f"{self.message} {self.cure}".strip(),
            "type": self.type,
            "param": self.param,
            "code": self.code,
        }


class InvalidRequest(TwinlensError):
    """The request cannot be served as it is; sending it again unchanged cannot help."""

    status = 400
    code = "invalid_request"
    type = "invalid_request_error"
    cure = "Correct the request and send it again."


class InvalidField(InvalidRequest):
    """A field has the wrong type or a value out of range."""

    code = "invalid_field"
    cure = "Correct the named field."


class UnsupportedField(InvalidRequest):
    """A field that this engine cannot honour; it is named instead of being dropped."""

    code = "unsupported_field"
    cure = "Leave the field out, or serve the model with an engine that supports it."


class NotHere(InvalidRequest):
    """A kind of input that Twinlens does not serve, such as video or audio."""

    code = "not_supported"
    cure = "See “Not here” in the README for what to use instead."


class InvalidSchema(InvalidRequest):
    """A JSON schema that is not one, or that the engine's grammar cannot enforce."""

    code = "invalid_json_schema"
    cure = "Correct the schema at the place named."


class ContextLengthExceeded(InvalidRequest):
    """Prompt and asked-for answer do not fit into the model's context; decided before the engine is asked."""

    code = "context_length_exceeded"
    cure = "Send fewer or smaller pictures (max_pixels), less text, or a smaller max_completion_tokens."


class OverTokenLimit(InvalidRequest):
    """One request has more tokens than its key or address may use in a minute: waiting cannot help."""

    code = "over_token_limit"
    cure = "Send fewer or smaller pictures or less text, or have the operator raise the limit of tokens a minute."


class TooManyImages(InvalidRequest):
    """More pictures in the whole conversation than the limit; decided before any is loaded."""

    code = "too_many_images"
    cure = "Leave out pictures of earlier turns, or raise max_images."


class FileQuotaExceeded(InvalidRequest):
    """More files, or more bytes in files, than one owner may keep here."""

    code = "file_quota_exceeded"
    cure = "Delete files that are no longer needed, or wait until some expire."


class ImageError(InvalidRequest):
    """A part that should be a picture and is not usable as one; `param` names the part."""

    code = "invalid_image"
    cure = "Send a complete JPEG, PNG, WebP, GIF, BMP or TIFF file."


class InvalidBase64(ImageError):
    """The text of a data URI or of a bare base64 string does not decode."""

    code = "invalid_base64"
    cure = "Encode the file's bytes with standard base64."


class UnsupportedImageFormat(ImageError):
    """The bytes are of a format outside the allow-list."""

    code = "unsupported_image_format"
    cure = "Send JPEG, PNG, WebP, GIF, BMP, TIFF, AVIF or PDF; HEIC where the extra heic is installed."


class ImageTooLarge(ImageError):
    """More bytes or pixels than allowed; decided from the header, before decoding."""

    code = "image_too_large"
    cure = "Scale the picture down before sending it."


class TooManyBytes(ImageTooLarge):
    """The pictures of one request, fetched or uploaded, have more bytes together than a request may."""

    cure = "Send fewer or smaller pictures in one request."


class ImageAspectRatio(ImageError):
    """One side is more than 200 times the other, which the model's processor does not take."""

    code = "image_aspect_ratio"
    cure = "Crop the picture or cut it into pieces with a smaller ratio."


class PdfInvalid(ImageError):
    """A part that is a PDF by its first bytes and cannot be opened or drawn: damaged, cut off, or without pages."""

    code = "pdf_invalid"
    cure = "Open it in a viewer and save it again, or send its pages as pictures."


class PdfEncrypted(ImageError):
    """A PDF that opens with a password only, and none was sent."""

    code = "pdf_encrypted"
    cure = "Send its password in the field “password” of the same part, or a copy without one."


class PdfBadPassword(PdfEncrypted):
    """A PDF that the password does not open."""

    code = "pdf_bad_password"
    cure = "Send the right password in the field “password” of the same part."


class PdfTimeout(ImageError):
    """A PDF that takes longer to read or draw than page_timeout_s: made to be slow, or by far too detailed."""

    code = "pdf_timeout"
    cure = "Send its pages as pictures, or leave out the page named; the operator can raise page_timeout_s."


class TooManyPages(ImageError):
    """More pages of documents than one request may bring; decided before any page is drawn."""

    code = "too_many_pages"
    cure = 'Choose pages with the field “pages” of the part, such as "1-3,7", or send the document in several requests.'


class NoSuchPage(ImageError):
    """A page was asked for that the document does not have."""

    code = "no_such_page"
    cure = "Ask for pages from 1 to the number of pages that the message names."


class ImageUrlNotAllowed(ImageError):
    """A URL that the server will not follow."""

    code = "image_url_not_allowed"
    cure = "Send the picture itself as a data URI, or have the operator add its https host to url_hosts."


class ImageFetchFailed(ImageError):
    """A URL that may be followed did not lead to a picture's bytes; the message says what its server answered."""

    code = "image_fetch_failed"
    cure = "See that the URL works for everybody, or send the picture itself as a data URI."


class ImageFetchTimeout(ImageError):
    """A URL's server did not give the whole picture in time."""

    code = "image_fetch_timeout"
    retryable = True
    cure = "Try again later, or send the picture itself as a data URI."


class Unauthorized(TwinlensError):
    """No key, or one that is not known."""

    status = 401
    code = "invalid_api_key"
    type = "authentication_error"
    cure = "Send a configured key as “Authorization: Bearer KEY”."


class Forbidden(TwinlensError):
    """The key is known and does not have the scope that the route needs."""

    status = 403
    code = "insufficient_scope"
    type = "permission_error"
    cure = "Use a key with that scope: “twinlens keys new --scope ...” makes one."


class HostNotAllowed(TwinlensError):
    """The Host header names another host: a page on the Web may have had its name pointed at this machine."""

    status = 403
    code = "host_not_allowed"
    type = "permission_error"
    cure = "Call the service by its own address, add the name to allowed_hosts, or configure keys."


class OriginNotAllowed(TwinlensError):
    """A page of another site had a browser send this, which browsers do without asking for forms."""

    status = 403
    code = "origin_not_allowed"
    type = "permission_error"
    cure = "Send it from a program, or add the page's origin to cors_origins."


class NotFound(TwinlensError):
    """No such route or object."""

    status = 404
    code = "not_found"
    type = "invalid_request_error"
    cure = "See /docs for what is there."


class ModelNotFound(NotFound):
    """The model named in the request is not served here."""

    code = "model_not_found"
    cure = "GET /v1/models lists what is served."


class TaskNotFound(NotFound):
    """The task named in the request is not among those of this service."""

    code = "task_not_found"
    cure = "GET /v1/tasks lists what is there; tasks of your own lie in the folder of the setting tasks_dir."


class FileNotThere(NotFound):
    """No such uploaded file: never there, deleted, expired, or another owner's, which looks the same."""

    code = "file_not_found"
    cure = "GET /v1/files lists your files; upload it again if it has expired."


class MethodNotAllowed(TwinlensError):
    """The route exists and does not take this method."""

    status = 405
    code = "method_not_allowed"
    type = "invalid_request_error"
    cure = "See /docs for the methods of each route."


class BodyTooSlow(TwinlensError):
    """The request body did not arrive in time."""

    status = 408
    code = "body_too_slow"
    type = "invalid_request_error"
    retryable = True
    cure = "Send the body without pauses, or raise request_timeout_s."


class BodyTooLarge(TwinlensError):
    """The request body is over the limit; the rest of it is not read."""

    status = 413
    code = "body_too_large"
    type = "invalid_request_error"
    cure = "Send fewer or smaller pictures, or raise max_body_bytes."


class UnsupportedMediaType(TwinlensError):
    """A body that is not JSON, or that is compressed."""

    status = 415
    code = "unsupported_media_type"
    type = "invalid_request_error"
    cure = "Send uncompressed JSON as application/json."


class RateLimited(TwinlensError):
    """A limit a minute of this key or client address is reached; the headers tell which, and when it is over."""

    status = 429
    code = "rate_limit_exceeded"
    type = "rate_limit_error"
    retryable = True
    cure = "Try again after the time in Retry-After."


class LongPromptsPaused(RateLimited):
    """Over-long prompts came in such numbers that they are refused for a while; shorter ones pass."""

    code = "long_prompts_paused"
    cure = "Try again after the time in Retry-After, or send a shorter prompt."


class HeadersTooLarge(TwinlensError):
    """Request line and headers together are over the limit; the connection is closed."""

    status = 431
    code = "headers_too_large"
    type = "invalid_request_error"
    cure = "Send fewer or shorter headers."


class ServerError(TwinlensError):
    """A fault of ours. The log has the particulars under the request id."""

    cure = "Try again; if it persists, look for the request id in the server's log."


class AnswerError(ServerError):
    """The engine's answer breaks a promise, such as the JSON schema that it was held to.

    `raw` is what the model wrote, where a task keeps it; its redaction has been over it. `body` tells it apart from the
    message, because it is content: it is never logged. `told` is what the model is told where it may try once more.
    """

    status = 502
    code = "invalid_answer"
    cure = "Try again with a larger max_completion_tokens or a simpler schema."
    raw: str | None = None
    told: str | None = None

    def body(self) -> dict[str, Any]:
        """See `TwinlensError.body`."""
        told = super().body()
        return told if self.raw is None else told | {"twinlens": {"raw_answer": self.raw} | self.more}


class AnswerStalled(AnswerError):
    """The model wrote nothing but white space, which a grammar may allow without end."""

    code = "structured_output_stalled"


class AnswerTruncated(AnswerError):
    """The answer of a task was cut at the token limit: half a record is no record."""

    code = "output_truncated"
    cure = "Raise max_tokens of the task, or ask for less."


class FinishError(AnswerError):
    """A finishing step of a task could not work on the answer."""

    code = "finishing_failed"
    cure = "Try the task with “twinlens task try”, which shows every step."


class AuditError(ServerError):
    """The audit line of an answer could not be written; without it the answer does not leave."""

    status = 507
    code = "audit_unwritable"
    cure = "Free space under $TWINLENS_DATA/audit and make it writable, or switch the setting audit off."


class StoreError(ServerError):
    """The shared store cannot take an object."""

    status = 507
    code = "store_unusable"
    cure = "Free memory under the store's folder, or give it another one with --store."


class FileStorageError(ServerError):
    """An uploaded file cannot be kept: the disk, or the room given to files, is full."""

    status = 507
    code = "file_storage_error"
    cure = "Have the operator free space under the folder for data, or raise files_bytes."


class Unavailable(TwinlensError):
    """Not now; the same request can succeed later."""

    status = 503
    code = "unavailable"
    type = "service_unavailable_error"
    retryable = True
    cure = "Try again after the time in Retry-After."


class Overloaded(Unavailable):
    """The bounded queue is full."""

    code = "overloaded"


class Draining(Unavailable):
    """The service is stopping: it finishes what runs and takes nothing new."""

    code = "draining"


class EngineUnavailable(Unavailable):
    """The engine is starting, was lost while it worked, or does not answer."""

    code = "engine_unavailable"


class EngineFailing(EngineUnavailable):
    """The engine failed so often just now that it is left alone for some seconds; then one request tries it."""

    code = "engine_failing"


class StoreMiss(Unavailable):
    """A reference names an object that is no longer in the store; sending the request again loads it again."""

    code = "store_miss"
    cure = "Send the request again."


class DeadlineExceeded(TwinlensError):
    """The request took longer than its deadline, or the engine gave no piece for too long."""

    status = 504
    code = "deadline_exceeded"
    type = "timeout_error"
    retryable = True
    cure = "Ask for a shorter answer, send fewer pictures, or raise request_timeout_s."


class OperatorError(TwinlensError):
    """Something that whoever runs the command has to mend; the command ends with exit code 2."""

    code = "operator_error"
    type = "operator_error"


class SettingsError(OperatorError):
    """An unknown setting, or a value that does not fit; the message names the setting and where it came from."""

    code = "settings_error"
    cure = "“twinlens config” shows every setting, its value and where it came from."


class TaskError(OperatorError):
    """A task file that cannot be used; the message names the file and the place in it."""

    code = "task_error"
    cure = "“twinlens task check FILE” checks a file; docs/tasks.md describes every key."


class BatchError(OperatorError):
    """A batch that cannot begin or go on as asked; what was finished stays in its journal."""

    code = "batch_error"
    cure = "docs/batch.md describes batches."


class ModelError(OperatorError):
    """A model folder or hub id that cannot be served as asked."""

    code = "model_error"
    cure = "Give a folder or a hub id of a Qwen2-VL, Qwen2.5-VL or Qwen3-VL model."


def tree(root: type[TwinlensError] = TwinlensError) -> list[type[TwinlensError]]:
    """All kinds of error, parents before children, in the order in which they are written."""
    found = [root]
    for child in root.__subclasses__():
        found.extend(tree(child))
    return found
