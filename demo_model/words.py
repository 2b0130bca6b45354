# ruff: noqa: SIM905, E501  (word lists read best as one string)
"""The words of the generator: values, field names and prompt wordings, each split into training and held-out.

A value of four characters or more belongs to the held-out set when its checksum says so (`is_held`): no list has
to be kept in step, and a test can prove the two sets disjoint. Wordings are split by hand.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from demo_model.wordings import compose

if TYPE_CHECKING:
    from random import Random


def is_held(value: str) -> bool:
    """Whether a value is kept for evaluation (one in eight is)."""
    return zlib.crc32(value.encode()) % 8 == 0


FIRST: Final = (
    "Ada Ben Carla Diego Elena Felix Greta Hugo Ines Jonas Klara Liam Mara Nils Olga Pablo Quinn Rosa Stefan Tara Uwe "
    "Vera Walter Xenia Yara Zoe Amir Bruno Celia Dario Emil Fiona Gavin Hanna Ivan Julia Karim Laura Marek Nadia Oscar "
    "Petra Rafael Sofia Tomas Ursula Viktor Wanda Yusuf Zelda Alan Bella Chloe Daniel Edith Frank Grace Henry Irene Jack"
).split()
LAST: Final = (
    "Abbott Becker Castro Dalton Eriksen Fischer Garcia Hansen Ibrahim Jensen Keller Larsen Moreau Novak Okafor Petrov "
    "Quintero Rossi Schmidt Torres Ueda Vargas Weber Xu Young Zimmer Almeida Bauer Costa Duarte Engel Ferrari Gomez Hale "
    "Ivanov Jung Kowalski Lopez Mendes Nguyen Olsen Pereira Reyes Silva Turner Ulrich Vega Walsh Yilmaz Zhang Ames Boyd "
    "Clark Doyle Ellis Ford Grant Hughes Kemp Lloyd Marsh Nash Owens Pratt Reid Shaw Tate Vance Wyatt York"
).split()
SYLLABLES: Final = (
    "ba be bi bo bu ca co cu da de di do du fa fe fi fo ga ge go gu ha he hi ho ja jo ka ke ki ko la le li lo lu ma me mi "
    "mo mu na ne ni no nu pa pe pi po qua ra re ri ro ru sa se si so su ta te ti to tu va ve vi vo wa we wi xa ya yo za ze "
    "zo bra cre dri flo gra kla pra sta stri tra spe chi sho tha"
).split()
ENDINGS: Final = "n r s l x nd rt ck m t sh ng ll ss th".split() + [""] * 6
GOODS: Final = (
    "Apple Bread Butter Candle Carrot Cereal Chair Cheese Coffee Cookie Cup Desk Eggs Flour Fork Garlic Ginger Glue Gloves "
    "Hammer Honey Jam Juice Kettle Knife Lamp Lemon Marker Melon Milk Mirror Mug Napkin Noodles Oil Onion Orange Paper "
    "Pasta Peach Pear Pen Pepper Pillow Plate Potato Radish Rice Rope Ruler Salt Sauce Scarf Soap Socks Spoon Stapler "
    "Sugar Table Tape Tea Tofu Tomato Towel Vase Vinegar Water Wine Wrench Yogurt"
).split()
KINDS: Final = (
    "Fresh Green Red White Black Organic Large Small Sweet Dry Mini Classic Golden Soft Light Dark Wild Daily".split()
)
STREETS: Final = "Street Road Lane Avenue Drive Way Court Square".split()
COMPANY: Final = "Ltd Inc GmbH Co LLC Group Foods Market Store Shop Supply Trading Labs Works".split()
COUNTRIES: Final = (
    "Norway Spain Italy France Brazil Japan Canada Kenya Chile Poland Austria Greece India Mexico Turkey Egypt Peru Vietnam"
).split()
MONTHS: Final = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
TESTS: Final = (
    ("Glucose", "葡萄糖", "mmol/L", 3.9, 6.1),
    ("Hemoglobin", "血红蛋白", "g/L", 120, 160),
    ("Sodium", "钠", "mmol/L", 135, 145),
    ("Potassium", "钾", "mmol/L", 3.5, 5.3),
    ("Calcium", "钙", "mmol/L", 2.1, 2.6),
    ("Urea", "尿素", "mmol/L", 2.5, 7.5),
    ("Creatinine", "肌酐", "umol/L", 45, 105),
    ("Albumin", "白蛋白", "g/L", 35, 55),
    ("Cholesterol", "胆固醇", "mmol/L", 3.0, 5.7),
    ("Platelets", "血小板", "10^9/L", 125, 350),
    ("WBC", "白细胞", "10^9/L", 4.0, 10.0),
    ("RBC", "红细胞", "10^12/L", 3.8, 5.5),
    ("ALT", "谷丙转氨酶", "U/L", 7, 40),
    ("AST", "谷草转氨酶", "U/L", 13, 35),
    ("TSH", "促甲状腺素", "mIU/L", 0.4, 4.0),
    ("Iron", "铁", "umol/L", 9, 30),
)
ZH_SURNAME: Final = (
    "王李张刘陈杨赵黄周吴徐孙朱马胡郭林何高罗郑梁谢宋唐许邓冯韩曹曾彭萧蔡潘田董袁于余叶蒋杜苏魏程吕丁沈任"
)
ZH_GIVEN: Final = "伟芳娜敏静丽强磊军洋勇艳杰娟涛明超霞平刚华文玉建国春兰海云飞晨雨欣佳宁安乐思远志诚博清梅雪松柏天晓光辉婷浩然嘉怡子轩"
ZH_GOODS: Final = (
    "苹果 面包 黄油 蜡烛 胡萝卜 椅子 奶酪 咖啡 饼干 杯子 鸡蛋 面粉 大蒜 生姜 胶水 手套 蜂蜜 果汁 水壶 台灯 柠檬 牛奶 镜子 餐巾 面条 食用油 "
    "洋葱 橙子 纸巾 桃子 梨 钢笔 胡椒 枕头 盘子 土豆 大米 绳子 尺子 食盐 酱油 围巾 肥皂 袜子 勺子 白糖 桌子 胶带 绿茶 红茶 豆腐 番茄 毛巾 花瓶 "
    "醋 矿泉水 酸奶"
).split()
ZH_PLACES: Final = "北京 上海 广州 深圳 杭州 南京 成都 武汉 西安 苏州 天津 重庆 青岛 长沙 大连 厦门".split()
ZH_SHOPS: Final = "超市 商店 商行 百货 便利店 食品店 文具店 药店".split()

#: I, l and O are left out: in many fonts they cannot be told from 1, I and 0.
ALPHABET: Final = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz0123456789"


#: Characters of values, labels and clauses.
ZH_ALPHABET: Final = "".join(
    sorted(
        set(
            ZH_SURNAME
            + ZH_GIVEN
            + "".join(ZH_GOODS + ZH_PLACES + ZH_SHOPS)
            + "克元月天个内自由至应付款交货押金服务开始验收承担合同双方保密提供转让税费任何一方可提前终止通知送达每期限责任保修适用法律违约签字买卖合计"
            + "小票号码日期时间收银员支付方式税额折扣发票电话患者报告编号年龄性别医生姓名证件出生有效国家地址品名价格货单位产重量"
        )
    )
)


class Values:
    """Draws values of one side of the split, so that no generator can mix training and held-out by mistake."""

    def __init__(self, rng: Random, held: bool) -> None:
        self.rng = rng
        self.held = held

    def _of_side(self, draw: object) -> str:
        for _ in range(400):
            value: str = draw()  # type: ignore[operator]
            if len(value) < 4 or is_held(value) == self.held:
                return value
        raise RuntimeError(f"no value of this side: {value}")

    def word(self) -> str:
        rng = self.rng

        def draw() -> str:
            return ("".join(rng.choice(SYLLABLES) for _ in range(rng.randint(2, 3))) + rng.choice(ENDINGS)).capitalize()

        return self._of_side(draw)

    def person(self) -> str:
        rng = self.rng

        def draw() -> str:
            last = rng.choice(LAST) if rng.random() < 0.5 else self.word()
            return f"{rng.choice(FIRST) if rng.random() < 0.7 else self.word()} {last}"

        return self._of_side(draw)

    def person_zh(self) -> str:
        rng = self.rng
        # Too short for the checksum rule of `is_held`, so the split is made here.
        while True:
            name = rng.choice(ZH_SURNAME) + "".join(rng.choice(ZH_GIVEN) for _ in range(rng.randint(1, 2)))
            if is_held(name) == self.held:
                return name

    def company(self) -> str:
        rng = self.rng
        return self._of_side(lambda: f"{self.word()} {rng.choice(COMPANY)}")

    def company_zh(self) -> str:
        rng = self.rng
        return self._of_side(
            lambda: rng.choice(ZH_PLACES) + "".join(rng.choice(ZH_GIVEN) for _ in range(2)) + rng.choice(ZH_SHOPS)
        )

    def goods(self) -> str:
        rng = self.rng

        def draw() -> str:
            noun = rng.choice(GOODS)
            form = rng.random()
            if form < 0.35:
                return f"{rng.choice(KINDS)} {noun}"
            if form < 0.55:
                return f"{noun} {rng.randint(2, 99)}{rng.choice(['g', 'kg', 'ml', 'cm', 'pcs'])}"
            if form < 0.75:
                return f"{self.word()} {noun}"
            return noun

        return self._of_side(draw)

    def goods_zh(self) -> str:
        rng = self.rng
        return self._of_side(lambda: rng.choice(ZH_GOODS) + (f"{rng.randint(10, 999)}克" if rng.random() < 0.4 else ""))

    def digits(self, low: int, high: int) -> str:
        rng = self.rng
        return self._of_side(lambda: "".join(rng.choice("0123456789") for _ in range(rng.randint(low, high))))

    def code(self) -> str:
        rng = self.rng

        def draw() -> str:
            letters = "".join(rng.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(rng.randint(1, 3)))
            number = "".join(rng.choice("0123456789") for _ in range(rng.randint(3, 7)))
            return rng.choice([f"{letters}-{number}", f"{letters}{number}", f"{number[:3]}-{letters}-{number[3:]}9"])

        return self._of_side(draw)

    def money(self, high: float = 2000) -> str:
        rng = self.rng
        return self._of_side(lambda: f"{rng.uniform(0.5, 10 ** rng.uniform(0.7, len(str(int(high))) - 0.3)):.2f}")

    def date(self) -> str:
        rng = self.rng

        def draw() -> str:
            year, month, day = rng.randint(1950, 2035), rng.randint(1, 12), rng.randint(1, 28)
            return rng.choice(
                [
                    f"{year}-{month:02d}-{day:02d}",
                    f"{day:02d}/{month:02d}/{year}",
                    f"{day} {MONTHS[month - 1]} {year}",
                    f"{year}.{month:02d}.{day:02d}",
                ]
            )

        return self._of_side(draw)

    def time(self) -> str:
        rng = self.rng
        return self._of_side(lambda: f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}")

    def address(self) -> str:
        rng = self.rng
        return self._of_side(lambda: f"{rng.randint(1, 299)} {self.word()} {rng.choice(STREETS)}")

    def random_string_zh(self) -> str:
        """Characters without sense, so that they are read and not guessed. For training only."""
        rng = self.rng
        return self._of_side(lambda: "".join(rng.choice(ZH_ALPHABET) for _ in range(rng.randint(2, 12))))

    def random_string(self, low: int = 4, high: int = 18) -> str:
        rng = self.rng
        alphabet = rng.choice([ALPHABET, ALPHABET, ALPHABET.upper(), "0123456789", ALPHABET + "-_/#.+"])
        alphabet = alphabet.replace("I", "").replace("O", "")
        return self._of_side(lambda: "".join(rng.choice(alphabet) for _ in range(rng.randint(low, high))))


@dataclass(frozen=True)
class Field:
    """One thing a document may say: how it is asked for, how it is labelled, and how its value is drawn."""

    key: str
    asked: str
    asked_zh: str
    labels: str
    labels_zh: str
    draw: str
    number: bool = False
    key_zh: str = ""


def _field(key: str, asked: str, asked_zh: str, labels: str, labels_zh: str, draw: str, number: bool = False) -> Field:
    return Field(key, asked, asked_zh, labels, labels_zh, draw, number, asked_zh.split("|", maxsplit=1)[0])


_ALL_FIELDS: Final = (
    _field(
        "merchant", "merchant|shop name|seller", "商户|商店名称", "Merchant|Store|Shop", "商户|商店|店名", "company"
    ),
    _field(
        "receipt_no",
        "receipt number|receipt no",
        "小票号|收据编号",
        "Receipt No|Receipt #|Slip",
        "小票号|收据号",
        "code",
    ),
    _field("date", "date", "日期", "Date|Issued|Day", "日期|开具日期", "date"),
    _field("time", "time", "时间", "Time|At", "时间", "time"),
    _field("cashier", "cashier", "收银员", "Cashier|Served by|Clerk", "收银员|收银", "person"),
    _field(
        "payment",
        "payment method|way of payment",
        "支付方式|付款方式",
        "Payment|Paid by|Method",
        "支付方式|付款",
        "payment",
    ),
    _field(
        "total",
        "total|total amount",
        "合计|总金额",
        "Total|TOTAL|Grand total|Amount due",
        "合计|总计|应付",
        "money",
        True,
    ),
    _field("tax", "tax", "税额", "Tax|VAT|Sales tax", "税额|税金", "money", True),
    _field("subtotal", "subtotal", "小计", "Subtotal|Net amount", "小计|净额", "money", True),
    _field("discount", "discount", "折扣", "Discount|Rebate", "折扣|优惠", "money", True),
    _field(
        "invoice_no",
        "invoice number|invoice no",
        "发票号码|发票号",
        "Invoice No|Invoice #|Inv. no.",
        "发票号码|发票号",
        "code",
    ),
    _field(
        "due_date", "due date|payment deadline", "到期日|付款期限", "Due date|Pay by|Due", "到期日|付款期限", "date"
    ),
    _field("buyer", "buyer|customer", "购买方|客户", "Buyer|Bill to|Customer", "购买方|客户", "company"),
    _field("order_no", "order number", "订单号", "Order No|PO number|Order", "订单号|采购单号", "digits"),
    _field("phone", "phone number|phone", "电话", "Phone|Tel|Tel.", "电话|联系电话", "phone"),
    _field("patient", "patient|patient name", "患者|病人姓名", "Patient|Patient name", "患者|病人", "person"),
    _field("report_no", "report number", "报告编号", "Report No|Lab no.|Sample ID", "报告编号|样本号", "code"),
    _field("age", "age", "年龄", "Age|Age (years)", "年龄", "age", True),
    _field("sex", "sex|gender", "性别", "Sex|Gender", "性别", "sex"),
    _field("doctor", "doctor", "医生", "Doctor|Physician|Requested by", "医生|送检医生", "person"),
    _field("name", "name|holder name", "姓名", "Name|Full name|Holder", "姓名", "person"),
    _field(
        "id_number", "id number|card number", "证件号码|身份证号", "ID No|ID number|Card No", "证件号码|编号", "digits"
    ),
    _field(
        "birth_date", "date of birth|birth date", "出生日期|生日", "Date of birth|Born|DOB", "出生日期|出生", "date"
    ),
    _field(
        "expiry", "expiry date|valid until", "有效期|有效期至", "Valid until|Expires|Expiry", "有效期至|有效期", "date"
    ),
    _field("country", "country|nationality", "国家|国籍", "Country|Nationality", "国家|国籍", "country"),
    _field("address", "address", "地址|住址", "Address|Home address", "地址|住址", "address"),
    _field("product", "product|product name", "商品|品名", "Product|Item|Article", "品名|商品", "goods"),
    _field("price", "price", "价格|单价", "Price|Now|Our price", "价格|单价|售价", "money", True),
    _field("code", "article code|item code", "货号|商品编码", "Code|Art. no.|SKU", "货号|编码", "code"),
    _field("unit", "unit", "单位", "Unit|per", "单位", "unit"),
    _field("origin", "origin|country of origin", "产地", "Origin|Made in|From", "产地", "country"),
    _field("weight", "weight", "重量", "Weight|Net weight", "重量|净重", "weight"),
)
FIELDS: Final = {field.key: field for field in _ALL_FIELDS}
PAYMENTS: Final = (
    ("Cash", "现金"),
    ("Card", "银行卡"),
    ("Voucher", "代金券"),
    ("Transfer", "转账"),
    ("Credit", "信用卡"),
)
UNITS: Final = (("piece", "个"), ("box", "盒"), ("bottle", "瓶"), ("bag", "袋"), ("kg", "千克"))
COUNTRIES_ZH: Final = "中国 日本 法国 德国 意大利 西班牙 泰国 越南 巴西 加拿大 澳大利亚 新西兰".split()
DOCUMENTS: Final = {
    "receipt": ("merchant receipt_no date time cashier payment total tax discount phone".split(), "小票", "receipt"),
    "invoice": (
        "invoice_no date due_date merchant buyer order_no subtotal tax total phone address".split(),
        "发票",
        "invoice",
    ),
    "lab": ("patient report_no date sex age doctor phone".split(), "检验报告", "lab report"),
    "card": ("name id_number birth_date sex country expiry address phone".split(), "证件", "card"),
    "tag": ("product price code unit origin weight discount".split(), "价签", "price tag"),
}

# ---- wordings. {f} is what is asked for, {d} the kind of picture, {k} a list of keys -----------------------------
FIELD_ASKS: Final = {
    "en": (
        "What is the {f}?|Read the {f}.|Give the {f}.|{f}?|Tell me the {f}.|What {f} is printed here?|Find the {f}.|"
        "Please read the {f} on this {d}.|What does the {d} say for {f}?|Which {f} is shown?|Extract the {f}.|"
        "Return only the {f}.|I need the {f}.|Look at the {d} and give me the {f}.|Can you read the {f}?|"
        "Write down the {f} of this {d}.|What's the {f}?|Show me the {f}.|From the picture, read the {f}.|"
        "Copy the {f} exactly as printed.|{f}, please.|Answer with the {f} only.|What is written as {f}?|"
        "Name the {f} in this {d}.".split("|"),
        "Could you tell me what the {f} is?|Please find and return the {f}.|Which {f} does this {d} have?|"
        "I would like to know the {f}.|Read out the {f} from the {d}.|Please give me only the {f}.".split("|"),
    ),
    "zh": (
        "{f}是什么？|读出{f}。|请给出{f}。|{f}？|图中的{f}是多少？|请读取{f}。|找出{f}。|这张{d}的{f}是什么？|只回答{f}。|"
        "告诉我{f}。|请提取{f}。|看图，写出{f}。|{d}上写的{f}是什么？|请照原样抄写{f}。|我需要{f}。|请问{f}是？".split(
            "|"
        ),
        "请问这张{d}的{f}是多少？|麻烦读一下{f}。|请从图中找到{f}并回答。|写下{f}。".split("|"),
    ),
}
RECORD_ASKS: Final = {
    "en": (
        "Return the record as JSON.|Extract the fields as JSON.|Read this {d} into JSON.|Give me a JSON object.|"
        "Fill in the JSON.|Read the {d}. Answer in JSON.|Extract all fields of this {d} as JSON.|"
        "Turn the {d} into a JSON record.|Please return JSON only.|Transcribe the {d} to JSON.|"
        "Read the picture and answer with JSON.|Produce the JSON for this {d}.|List the data as a JSON object.|"
        "Give the data of the {d}, as JSON.|Extract the data.|What does this {d} say? Use JSON.".split("|"),
        "Please extract the information of this {d} as JSON.|Convert this picture to a JSON record.|"
        "Answer with one JSON object that holds the data of the {d}.|Read everything into JSON, please.".split("|"),
    ),
    "zh": (
        "以JSON返回。|提取字段，输出JSON。|把这张{d}转成JSON。|请输出JSON对象。|读取{d}，用JSON回答。|请填写JSON。|"
        "将图片内容整理成JSON。|只返回JSON。|提取这张{d}的全部字段。|请用JSON给出{d}的数据。|生成JSON记录。".split("|"),
        "请把{d}中的信息提取为JSON。|用一个JSON对象回答图中的数据。|请将{d}识别为JSON。".split("|"),
    ),
}
KEY_ASKS: Final = {
    "en": (
        " Keys: {k}.| Use the keys {k}.| Fields: {k}.| Give {k}.".split("|"),
        " The keys are {k}.| I want {k}.".split("|"),
    ),
    "zh": ("字段：{k}。|使用键{k}。|包括{k}。".split("|"), "键为{k}。|需要{k}。".split("|")),
}
SCHEMA_ASKS: Final = {
    "en": (
        "\n| JSON schema: |\nSchema:\n|\nAnswer with JSON that fits this schema:\n| The answer must match this JSON schema:\n|"
        " Follow the schema \n|\nUse this JSON schema: | Schema: ".split("|"),
        "\nReply in JSON according to this schema:\n| Match the following JSON schema:\n".split("|"),
    ),
    "zh": (
        "\n|\nJSON模式：\n|\n按照以下模式回答：\n|符合此JSON Schema：".split("|"),
        "\n请按此模式输出：\n|\n模式如下：\n".split("|"),
    ),
}
READ_ASKS: Final = {
    "en": (
        "Read the text.|What does it say?|What is written here?|Transcribe the picture.|Read it.|Text?|Copy the text.|"
        "Read all lines.|Give the text of the picture.|What text do you see?|OCR.|Write out what is printed.|"
        "Read everything.|Please transcribe.|Type out the text in the image.|Which text is shown?".split("|"),
        "Please read the text in this picture.|What is the text in the image?|Spell out what is written.".split("|"),
    ),
    "zh": (
        "读出文字。|图中写了什么？|识别文字。|请抄写图中文字。|写出图片里的文字。|上面写着什么？|请读图。|文字内容是什么？".split(
            "|"
        ),
        "请识别图片中的文字。|图上有什么文字？".split("|"),
    ),
}
COUNT_ASKS: Final = {
    "en": (
        "How many {o} are there?|Count the {o}.|How many {o}?|Number of {o}?|Tell me how many {o} you see.|"
        "How many {o} are in the picture?|Give the number of {o}.|Count {o}.|What is the count of {o}?|"
        "How many {o} can be seen?|Please count the {o}.|How many {o} does the scene have?".split("|"),
        "Please tell me the number of {o}.|How many {o} do you see here?|Count all {o} in the image.".split("|"),
    ),
    "zh": (
        "有几个{o}？|数一数{o}。|图中有多少个{o}？|{o}有几个？|请数出{o}的数量。|{o}的个数？|一共有几个{o}？".split(
            "|"
        ),
        "请问图里有几个{o}？|{o}的数量是多少？".split("|"),
    ),
}
COLOUR_ASKS: Final = {
    "en": (
        "What colour is the {o}?|Which colour does the {o} have?|Colour of the {o}?|What is the colour of the {o}?|"
        "Tell me the colour of the {o}.|What color is the {o}?|Name the colour of the {o}.|The {o} is which colour?|"
        "Give the color of the {o}.|Say the colour of the {o}.".split("|"),
        "In which colour is the {o}?|Please name the color of the {o}.".split("|"),
    ),
    "zh": (
        "{o}是什么颜色？|{o}的颜色？|请说出{o}的颜色。|那个{o}是什么颜色的？|{o}什么颜色？".split("|"),
        "请问{o}是哪种颜色？|图中{o}的颜色是什么？".split("|"),
    ),
}
RELATION_ASKS: Final = {
    "en": (
        "Is the {o} left or right of the {p}?#lr|Where is the {o}: left or right of the {p}?#lr|"
        "On which side of the {p} is the {o}, left or right?#lr|Left or right: where is the {o} from the {p}?#lr|"
        "Is the {o} above or below the {p}?#ab|Where is the {o}: above or below the {p}?#ab|"
        "Above or below: where is the {o} from the {p}?#ab|Is the {o} over (above) or under (below) the {p}?#ab|"
        "Which is in front, the {o} or the {p}?#fr|Which one is in front: the {o} or the {p}?#fr|"
        "Does the {o} or the {p} lie in front?#fr|Of the {o} and the {p}, which is in front?#fr".split("|"),
        "Seen from the {p}, is the {o} to the left or to the right?#lr|Would you say the {o} is above or below the {p}?#ab|"
        "Is the {o} or the {p} in front?#fr".split("|"),
    ),
    "zh": (
        "{o}在{p}的左边还是右边？#lr|{o}在{p}左侧还是右侧？#lr|相对{p}，{o}在左边还是右边？#lr|"
        "{o}在{p}的上面还是下面？#ab|{o}位于{p}上方还是下方？#ab|{o}和{p}哪个在前面？#fr|在前面的是{o}还是{p}？#fr".split(
            "|"
        ),
        "请问{o}在{p}左边还是右边？#lr|请问{o}在{p}上面还是下面？#ab|前面的是{o}还是{p}？#fr".split("|"),
    ),
}
LOCATE_ASKS: Final = {
    "en": (
        "Where is the {o}?|Locate the {o}.|Give the box of the {o}.|Find the {o} and return its box.|Box of the {o}?|"
        "Return the bounding box of the {o}.|Where is the {o}? Answer with a box.|Mark the {o}.|Detect the {o}.|"
        "Point out the {o} with a box.|Bounding box for the {o}, 0-1000.|Show where the {o} is.".split("|"),
        "Please give the bounding box of the {o}.|In which box is the {o}?|Find the box around the {o}.".split("|"),
    ),
    "zh": (
        "{o}在哪里？|定位{o}。|给出{o}的边界框。|找到{o}并返回方框。|{o}的位置？|请框出{o}。|返回{o}的坐标框。".split(
            "|"
        ),
        "请给出{o}所在的边界框。|请问{o}的方框坐标？".split("|"),
    ),
}
INSPECT_ASKS: Final = {
    "en": (
        "Inspect this part.|Is there a defect? Answer in JSON.|Find the defect.|Check the surface.|Report the defect as JSON.|"
        "Which defect do you see, where, and why?|Inspect the plate and return JSON.|Look for damage.|"
        "Give the defect, its box and the cause.|Quality check.|Examine the surface and report.|"
        "Describe the defect: kind, box, cause.|What is wrong with this part?|Detect the defect with its box.".split(
            "|"
        ),
        "Please inspect the surface and report any defect.|Is this part damaged? Give kind, box and cause.|"
        "Run a visual inspection.".split("|"),
    ),
    "zh": (
        "检查这个零件。|有缺陷吗？用JSON回答。|找出缺陷。|检查表面。|报告缺陷。|有什么缺陷，在哪里，原因是什么？|质检。|"
        "给出缺陷、方框和原因。|这个零件有什么问题？".split("|"),
        "请检测表面缺陷并输出JSON。|请对该零件做外观检查。".split("|"),
    ),
}
DEFECT_ASKS: Final = {
    "en": (
        "What kind of defect is it?|Name the defect.|Which defect is there?|Kind of defect?|What defect do you see?|"
        "Tell me the defect type.|What damage is there?".split("|"),
        "Which type of damage is this?|Please name the kind of defect.".split("|"),
    ),
    "zh": ("是什么缺陷？|缺陷类型？|说出缺陷种类。|有什么缺陷？".split("|"), "请问缺陷属于哪一种？".split("|")),
}
CHART_ASKS: Final = {
    "en": (
        "What is the value of {o}?#v|How much is {o}?#v|Value for {o}?#v|Read the value of {o}.#v|What value does {o} have?#v|"
        "Give the number for {o}.#v|How high is {o}?#v|Which is the largest?#max|What has the highest value?#max|"
        "Name the largest.#max|Which one is the highest?#max|Which category is the biggest?#max|Which is the smallest?#min|"
        "What has the lowest value?#min|Name the smallest.#min|Which one is the lowest?#min|What is the trend?#t|"
        "Does it rise or fall?#t|Describe the trend in a word.#t|How does the line develop?#t|Trend?#t".split("|"),
        "Please tell me the value for {o}.#v|Which of them has the highest value?#max|Which of them has the lowest value?#min|"
        "What trend does the chart show?#t".split("|"),
    ),
    "zh": (
        "{o}的值是多少？#v|{o}是多少？#v|读出{o}的数值。#v|{o}有多高？#v|哪个最大？#max|最高的是哪个？#max|数值最大的是？#max|"
        "哪个最小？#min|最低的是哪个？#min|数值最小的是？#min|趋势是什么？#t|是上升还是下降？#t|趋势如何？#t".split(
            "|"
        ),
        "请问{o}的数值？#v|请问哪一个最高？#max|请问哪一个最低？#min|图表的趋势是什么？#t".split("|"),
    ),
}
CHART_JSON_ASKS: Final = {
    "en": (
        "Return the chart's data as JSON.|Turn the chart into JSON.|Extract all values as JSON.|Read the chart into JSON.|"
        "Give the data of the chart.|List labels and values as JSON.|Give every label with its value.".split("|"),
        "Please convert the chart to JSON data.|Extract the chart's labels and values.".split("|"),
    ),
    "zh": (
        "以JSON返回图表数据。|把图表转成JSON。|提取所有数值。|列出标签和数值。".split("|"),
        "请将图表数据输出为JSON。".split("|"),
    ),
}
GARMENT_ASKS: Final = {
    "en": (
        "Who is it for, for which occasion, and which fabric?|Describe the garment: audience, occasion, fabric.|"
        "Audience, occasion and fabric?|Give audience, occasion and fabric as short points.|"
        "Tell me the audience, the occasion and the fabric.|List audience, occasion, fabric of this garment.|"
        "Write product points: audience, occasion, fabric.|For whom, when to wear, which fabric?".split("|"),
        "Please list who wears it, the occasion and the fabric.|Summarise this garment: audience, occasion, fabric.".split(
            "|"
        ),
    ),
    "zh": (
        "适合谁，什么场合，什么面料？|给出人群、场合和面料。|描述这件衣服：人群、场合、面料。|人群、场合、面料分别是什么？|"
        "列出适用人群、场合与面料。|请写出人群、场合和面料要点。".split("|"),
        "请总结这件衣服的人群、场合、面料。|这件衣服给谁穿，什么场合，何种面料？".split("|"),
    ),
}
GARMENT_PART_ASKS: Final = {
    "en": (
        "What {f} is it?|Which {f} does the garment have?|{f}?|Tell me the {f}.|Name the {f}.|What is the {f}?|Give the {f}.".split(
            "|"
        ),
        "Please say which {f} this garment has.|What would you call the {f}?".split("|"),
    ),
    "zh": ("{f}是什么？|{f}？|请说出{f}。|这件衣服的{f}是？|给出{f}。".split("|"), "请问{f}是什么？".split("|")),
}
CONTRACT_ASKS: Final = {
    "en": (
        "List the clauses.|Return the clauses as JSON.|Extract the clauses.|Read the contract into JSON.|Give all clauses.|"
        "List every clause with heading and text.|Transcribe the clauses as a JSON list.|Clauses?|"
        "Split this page into clauses.|Return heading and text of each clause.".split("|"),
        "Please extract each clause with its heading and text.|Give me the contract's clauses as a list.".split("|"),
    ),
    "zh": (
        "列出条款。|以JSON返回条款。|提取全部条款。|给出每条的标题和内容。|读取合同条款。|把条款整理成列表。".split(
            "|"
        ),
        "请提取合同中的每一条。|请输出条款列表。".split("|"),
    ),
}
CLAUSE_ASKS: Final = {
    "en": (
        "What does the clause {f} say?|Read the clause {f}.|Text of {f}?|Give the text of the clause {f}.|"
        "What is written under {f}?|Quote the clause {f}.".split("|"),
        "Please quote what {f} says.|Read me the text under {f}.".split("|"),
    ),
    "zh": (
        "{f}条款写了什么？|读出{f}的内容。|{f}的内容是什么？|请引用{f}条款。".split("|"),
        "请问{f}是怎么规定的？".split("|"),
    ),
}
PICTURE_WORDS: Final = {
    "en": (
        (
            "In picture {n}: |In the {nth} picture, |Picture {n}. |Look at the {nth} picture. |For image {n}: ".split(
                "|"
            )
        ),
        ("Consider picture {n}. |Using the {nth} image: ".split("|")),
    ),
    "zh": (("图{n}：|第{n}张图，|看第{n}张图片。|在图{n}中，".split("|")), ("请看图{n}。|对于第{n}张图：".split("|"))),
}
SYSTEMS: Final = (
    "You are a careful reader of pictures.|Answer briefly.|You read documents.|Answer in few words.|你是一个图像助手。|"
    "Reply with the answer only.|You are an inspection system.|Be exact."
).split("|")
NOT_THERE: Final = {"en": "It is not there.", "zh": "图中没有。"}


#: How a table with kinds of questions is drawn from patterns: how often each kind.
_KINDS: Final = {
    "RELATION_ASKS": {"lr": 4, "ab": 4, "fr": 2},
    "CHART_ASKS": {"v": 10, "max": 3, "min": 3, "t": 4},
}
_NAMES: Final = {id(table): name for name, table in list(globals().items()) if name.endswith(("_ASKS", "_WORDS"))}


def wording(rng: Random, table: dict[str, tuple[list[str], list[str]]], lang: str, held: bool) -> str:
    """A way to ask. Training mixes the listed wordings with those of `wordings.PATTERNS`."""
    listed, kept = table[lang]
    if held:
        return rng.choice(kept)
    name = _NAMES[id(table)]
    if rng.random() < 0.3:
        return rng.choice(listed)
    if name in _KINDS:
        kind = rng.choices(list(_KINDS[name]), list(_KINDS[name].values()))[0]
        return compose(rng, f"{name}_{kind}", lang, [each.partition("#")[0] for each in kept]) + f"#{kind}"
    return compose(rng, name, lang, kept)
