"""Names of fields that hold something personal, and what kind it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS: Final = ("id", "passport", "phone", "card", "email", "plate", "name")

_NAMES: Final[Mapping[str, str]] = {
    "id": "id number|id no|id card|id card number|id card no|identity number|identity card number|national id|"
    "citizen id|身份证|身份证号|身份证号码|公民身份号码|公民身份证号码|证件号|证件号码",
    "passport": "passport|passport no|passport number|护照|护照号|护照号码",
    "phone": "phone|phone no|phone number|telephone|telephone number|tel|mobile|mobile number|mobile phone|cell phone|"
    "contact phone|电话|电话号码|联系电话|手机|手机号|手机号码",
    "card": "card number|bank card|bank card number|bank account|bank account number|account no|account number|"
    "credit card|credit card number|iban|银行卡|银行卡号|卡号|银行账号|账号|账户",
    "email": "email|email address|e mail|mail address|邮箱|电子邮箱|电子邮件|邮件地址",
    "plate": "plate|plate no|plate number|licence plate|license plate|car plate|number plate|"
    "车牌|车牌号|车牌号码|号牌号码",
    "name": "name|full name|first name|last name|given name|family name|surname|holder|holder name|cardholder|patient|"
    "patient name|doctor|doctor name|physician|cashier|contact|contact name|person|person name|姓名|名字|持有人|持证人|"
    "患者|患者姓名|病人|病人姓名|医生|医师|收银员|联系人|法定代表人",
}
#: Labels behind which a name stands in free text; fewer, because sentences have such words too.
LABELS: Final = (
    *("name", "full name", "surname", "given name", "given names", "holder", "cardholder", "patient", "patient name"),
    *("姓名", "持证人", "患者", "患者姓名", "病人姓名"),
)


def plain(name: str) -> str:
    """A field's name without the differences of spelling: case, spaces, underscores and dashes."""
    return re.sub(r"[\W_]+", "", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).casefold())


_KIND_OF: Final = {plain(name): kind for kind, names in _NAMES.items() for name in names.split("|")}


def kind_of(name: str) -> str | None:
    """The kind of what a field of this name holds; None: nothing personal that is known."""
    return _KIND_OF.get(plain(name))
