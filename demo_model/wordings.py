# ruff: noqa: E501  (tables of words)
"""Many ways to ask: patterns of training with alternatives in brackets, expanded when a question is drawn.

`[a|b|]` stands for one of its parts. A pattern never gives a held-out wording: `compose` draws again where it does, and
a test goes through every table. `{f}`, `{o}`, `{p}`, `{d}`, `{k}` stay for the generator to fill in.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from random import Random

_GROUP: Final = re.compile(r"\[([^\[\]]*)\]")

_ASK: Final = "[Please |Kindly |Can you |Could you |Now |Just |I want you to |You should |]"
_SEE: Final = "[ in the picture| in this image| shown here| in the photo| on it||||]"
_END: Final = "[ Be brief.| Thanks.| Answer only.| Answer shortly.| No explanation.||||||]"
_QING: Final = "[请|请你|请帮我|麻烦|麻烦你|帮我|帮忙|劳驾|现在|请问能否|能不能|我想让你|||]"
_WEN: Final = "[请问|问一下，|我想知道，|想问：|请告诉我，|看图回答：|根据图片，|请看图，|仔细看，|您好，|||||]"
_TU: Final = "[图中|图里|图片中|图片里|图上|画面中|画面里|照片里|这张图里|这幅图中|]"
_WEI: Final = "[谢谢。|直接回答。|只要答案。|简短回答。|不要解释。||||||||]"

PATTERNS: Final[dict[str, dict[str, str]]] = {
    "FIELD_ASKS": {
        "en": f"[What is|What's|Do you see|Tell me|Say|State] the {{f}}[ on this {{d}}| of the {{d}}| here| printed on it|]?{_END}#{_ASK}[read|find|give|return|extract|copy|write down|report|get|look up|output|show|identify|name] [the|me the] {{f}}[ from this {{d}}| of this {{d}}| on the {{d}}| in the image|].{_END}#[The|This {{d}}'s|Value of the|Needed: the|Wanted: the|Field: ] {{f}}[.|?|:]#[Which|What] {{f}} [is given|is stated|do you read|appears here|stands on this {{d}}|is on the {{d}}|can be seen|is listed]?#[I would like|I'd like|We need|I am looking for|I want|Let me have|Let me know] the {{f}}[ of this {{d}}| please|].{_END}",
        "zh": f"{_WEN}{_TU}[这张{{d}}的|{{d}}的|{{d}}上的|该{{d}}的|此{{d}}的|]{{f}}[是什么|是多少|是啥|写的是什么|写了什么|为何|是哪个|显示为什么|的内容是什么][？|?]{_WEI}#{_QING}[读出|读取|读一下|找到|找出|查找|查一下|给出|写出|说出|提取|抽取|识别|输出|返回|抄写|抄下|回答|报出|告知|看看|念出|辨认][这张{{d}}的|{{d}}的|{{d}}上的|{_TU}的|图中|]{{f}}[。|，谢谢。|，只要结果。||。{_WEI}]#[需要|我要|我想要|想知道|我想知道|要|只要|求][这张{{d}}的|{{d}}的|]{{f}}[。||，请回答。|，请给出。]#[从|由|依据|根据][图中|图片|这张{{d}}|{{d}}|画面][找到|读出|提取|得到|回答|写出|给出|确定|识别]{{f}}[。||并返回。|并写下。|，然后回答。]#[{{d}}|这张{{d}}|图片|图|上面][显示的|写明的|记载的|标注的|印着的|列出的]{{f}}[是什么|是多少|呢|是]？",
    },
    "RECORD_ASKS": {
        "en": f"{_ASK}[extract|read|convert|transcribe|turn|parse|transform|put|digitise|capture|write|collect] [this {{d}}|the {{d}}|the picture|this document|the image|all data|the data of this {{d}}|the information|everything|the fields] [as JSON|into JSON|to JSON|in JSON form|as a JSON object|into one JSON record|as structured JSON].{_END}#[JSON only|JSON|Output JSON|Structured data|Record|Data as JSON|Answer in JSON|Reply with JSON], [please|for this {{d}}|from the picture|of the {{d}}].#[What is on this {{d}}|What information does the {{d}} hold|What do you read on this {{d}}|What data does it show]? [Answer|Reply|Respond] [with|in|using] JSON.#[I need|Give me|We want|Make|Create|Prepare|Build] [a JSON object|the JSON|one record|a structured record|the JSON record] [of|from|for] [this {{d}}|the {{d}}|this picture|the image].",
        "zh": f"{_QING}[把|将][这张{{d}}|{{d}}|图片|图中信息|图中内容|{{d}}内容|图片里的数据|{{d}}里的信息|上面的内容][转成|转为|转换成|转换为|整理成|整理为|提取为|提取成|读成|写成|变成|解析成|解析为|输出为|识别成|录入为][JSON|JSON格式|JSON对象|一个JSON|JSON记录|结构化JSON|JSON数据]{{}}[。||，谢谢。]#{_QING}[以|用|按|使用][JSON|JSON格式|JSON对象|一个JSON|JSON形式][返回|回答|输出|给出|列出|写出|表示|回复]{_TU}[这张{{d}}的内容|{{d}}的信息|全部信息|所有字段|各项数据|{{d}}数据|内容|结果|]。#{_QING}[提取|抽取|读取|识别|录入|解析|收集|整理|读出|获取][这张{{d}}的|{{d}}中的|{{d}}上的|图中|图片中的|][信息|字段|所有信息|全部内容|数据|各项内容|所有字段|文字信息][，输出JSON|，返回JSON|，用JSON回答|，以JSON给出|并输出为JSON|并整理为JSON|成JSON|，只要JSON]。#[这张{{d}}|{{d}}|图中|图片]{{}}[有哪些信息|写了什么|有什么数据|包含哪些字段|的内容是什么]？[请用JSON回答|用JSON给出|以JSON输出|返回JSON|输出JSON对象]。".replace(
            "{}", ""
        ),
    },
    "KEY_ASKS": {
        "en": " [Use these keys|With the keys|Only these keys|Required keys|Keys to fill|The fields|Include|Return the keys|Names of the fields|Fields wanted|Please use|It needs]: {k}.# [Fill in|Provide|Return|Include|Report|Extract|Read|Take] {k}[.| only.|, nothing else.]",
        "zh": "[键|键名|字段名|字段|需要的字段|需要的键|要求字段|包含字段|只要|请给出|使用以下键|字段包括|键包括|键名为|请用这些键|要提取的字段]：{k}。#[请填写|返回|包含|提取|给出|输出|按字段|用键|其中包括|需包含]{k}。",
    },
    "SCHEMA_ASKS": {
        "en": "[\\n| ][Schema|JSON schema|Use the schema|Fit this schema|Follow this JSON schema|The schema is|Output schema|Answer by the schema|Format|Respond with JSON matching the schema|Here is the schema|It must fit|Stick to this JSON schema|Required format][:\\n|: |:]",
        "zh": "[\\n|][模式|JSON模式|JSON Schema|请按模式|遵循以下模式|按照此模式输出|格式要求|输出格式|按下列模式回答|须符合模式|请遵守此JSON Schema|结构如下|按如下结构|使用此模式|答案须符合以下模式][：\\n|：|：]",
    },
    "READ_ASKS": {
        "en": f"{_ASK}[read|transcribe|copy|type|write out|output|give|list|return|recognise|extract|spell|tell me] [the text|all text|the words|the lines|every line|what is printed|the writing|what it says|the printed text|the content]{_SEE}.{_END}#[What|Which] [text|words|lines|letters|characters|writing] [is|are|stand|can you read|do you see|appear] [there|here|in the picture|in this image|on it|printed]?#[What is printed|What stands|What can you read|What do you read|What is to be read] [here|there|in the picture|on the image]?",
        "zh": f"{_QING}[读出|读取|识别|抄写|抄录|写出|写下|输出|提取|转写|誊写|给出|念出|列出|辨认|读一读|返回]{_TU}[的文字|的全部文字|的内容|文字|所有文字|每一行|的字|的文本|的所有内容|印的字|写的内容][。|，谢谢。||。{_WEI}]#{_WEN}{_TU}[写着什么|写了什么|写的什么|是什么字|印着什么|有哪些文字|有什么字|写了哪些内容|的文字是什么|能看到什么字|的内容是什么]？#[文字识别|光学识别|全文|文本|OCR|读字|读图|转成文字|逐行读出|全部读出|照抄][。||：|，请。]",
    },
    "COUNT_ASKS": {
        "en": f"[How many|What number of|Exactly how many] {{o}} [are shown|do you count|do you find|are visible|are drawn|can you find|appear|are here|exist|does the image show|does it contain|can you see]{_SEE}?#{_ASK}[count|give the count of|find the number of|report the number of|state how many|say how many|determine the number of|work out the number of] [the |all the |all |]{{o}}{_SEE}.{_END}#[Number of|Count of|Total of|Quantity of|Total number of] {{o}}{_SEE}[?|.|:]#[What is|What's] the [number|total|quantity|count] of {{o}}{_SEE}?",
        "zh": f"{_WEN}{_TU}[有几个|有多少个|有多少|共有几个|一共有多少个|总共有几个|出现了几个|能看到几个|画了几个|存在几个|能找到几个|包含几个]{{o}}[？|呢？|啊？|?]{_WEI}#{_QING}[数一数|数数|数一下|数出|统计|统计一下|计算|清点|算一算|算出|点一点]{_TU}[有几个|有多少个|的|所有|全部|]{{o}}[。|，谢谢。||的数量。|的个数。|的数目。|的总数。]#{_WEN}{_TU}{{o}}[的数量|的个数|的数目|的总数|数量|个数|总数][为多少|有多少|是几|是|是多少个|为|等于几]？#{_TU}{{o}}[一共有几个|有多少个|共有多少|总共几个|有多少|多少个|几个]？#{_QING}[说出|给出|告诉我|回答|写出|报出][{_TU}|]{{o}}[有几个|的个数|的数量|有多少个|的数目]。",
    },
    "COLOUR_ASKS": {
        "en": f"[What|Which] [colour|color] [does the {{o}} have|is that {{o}}|has the {{o}}|was used for the {{o}}|do you see on the {{o}}|is the {{o}} painted]{_SEE}?#{_ASK}[tell me|give|name|say|state|report|identify|find] the [colour|color] of the {{o}}{_SEE}.{_END}#The {{o}}: [which|what] [colour|color]?#[Colour|Color] of [the|that|this] {{o}}{_SEE}[?|.|:]#The {{o}} has [which|what] [colour|color]?",
        "zh": f"{_WEN}{_TU}[的|那个|这个|]{{o}}[是什么颜色|是何种颜色|是什么颜色的|什么颜色|是啥颜色|呈什么颜色|有什么颜色|的颜色为何|属于什么颜色|的颜色是哪种|颜色是什么|用的是什么颜色|涂成什么颜色][？|呢？|?]{_WEI}#{_QING}[说出|说一下|说明|指出|给出|判断|看看|回答|写出|识别|告诉我|描述|辨认]{_TU}[的|那个|]{{o}}[的颜色|是什么颜色|的色彩|是何颜色|颜色][。||，谢谢。]#{{o}}[的颜色|颜色|的色彩][为？|是？|？|呢？|如何？]",
    },
    "RELATION_ASKS_lr": {
        "en": f"[Is|Does] the {{o}} [lie |stand |]{_SEE}[ |][to the |on the |]left or right of the {{p}}?#[Where does the {{o}} lie|Where is the {{o}}|On which side is the {{o}}|Which side is the {{o}} on], [left or right of|relative to|compared with|seen from|as seen from] the {{p}}[: left or right|; left or right|, left or right]?#{_ASK}[say|tell me|decide|state] [whether|if] the {{o}} is [left or right|on the left or the right|to the left or the right] of the {{p}}.{_END}#Left or right of the {{p}}: [where is|where do you see] the {{o}}?#[Looking at|Compared with|Next to] the {{p}}, is the {{o}} [left or right|on the left or on the right|further left or further right]?#[From|Compared with|Relative to|As against] the {{p}}, [is|where is|does] the {{o}} [lie |stand |][more |]left or right?#[Take|Look at|Start from|Begin at] the {{p}}[:|;|.] is the {{o}} left or right of it?",
        "zh": f"{_WEN}{_TU}{{o}}[在|位于|处于|是在]{{p}}[的|][左边还是右边|左侧还是右侧|左面还是右面|左方还是右方|左还是右|哪一侧，左边还是右边|哪边，左还是右][？|呢？|?]{_WEI}#{_WEN}[相对于|相对|和|与|以|从|对于]{{p}}[来说|相比|看|为准|而言|]，{{o}}[在左边还是右边|在左侧还是右侧|位于左边还是右边|在左还是在右|偏左还是偏右]？#{_QING}[判断|说明|说出|回答|指出|告诉我|看看]{{o}}[在|位于]{{p}}[的|][左边还是右边|左侧还是右侧|左边或右边|左还是右]。#{{p}}的[哪一边|哪边|哪侧|哪一侧]是{{o}}，[左边还是右边|左还是右|左侧还是右侧]？#[左边还是右边|左还是右|左侧还是右侧]：{{o}}[在|位于]{{p}}的[哪边|哪一侧|哪一边|哪侧]？",
    },
    "RELATION_ASKS_ab": {
        "en": f"[Is|Does] the {{o}} [lie |stand |placed |]above or below the {{p}}{_SEE}?#[Where does the {{o}} lie|Where is the {{o}}|Where do you see the {{o}}], [relative to|compared with|seen from] the {{p}}[: above or below|; above or below|, above or below]?#{_ASK}[say|tell me|decide|state] [whether|if] the {{o}} is above or below the {{p}}.{_END}#Above or below the {{p}}: [where is|where do you see] the {{o}}?#[Looking at|Compared with] the {{p}}, is the {{o}} [above or below|higher (above) or lower (below)]?#[From|Compared with|Relative to|As against] the {{p}}, [is|where is|does] the {{o}} [lie |stand |]above or below?#[Take|Look at|Start from|Begin at] the {{p}}[:|;|.] is the {{o}} above or below it?",
        "zh": f"{_WEN}{_TU}{{o}}[在|位于|处于|是在]{{p}}[的|][上面还是下面|上方还是下方|上边还是下边|上还是下|哪里，上面还是下面][？|呢？|?]{_WEI}#{_WEN}[相对于|相对|和|与|以|从|对于]{{p}}[来说|相比|看|为准|而言|]，{{o}}[在上面还是下面|在上方还是下方|位于上面还是下面|在上还是在下|偏上还是偏下]？#{_QING}[判断|说明|说出|回答|指出|告诉我|看看]{{o}}[在|位于]{{p}}[的|][上面还是下面|上方还是下方|上面或下面|上还是下]。#[上面还是下面|上还是下|上方还是下方]：{{o}}[在|位于]{{p}}的[哪边|哪里|哪一边|哪个方向]？",
    },
    "RELATION_ASKS_fr": {
        "en": f"[Which|Which one|What] [is nearer|lies in front|stands in front|is on top|covers the other|overlaps the other|is in the foreground], the {{o}} or the {{p}}?#{_ASK}[say|tell me|decide|name] [which|which one] is in front: the {{o}} or the {{p}}.{_END}#The {{o}} or the {{p}}: [which is in front|which covers the other|which one lies in front|which is nearer]?#Between the {{o}} and the {{p}}, which [is in front|lies in front|covers the other]?",
        "zh": f"{_WEN}{_TU}{{o}}[和|与|跟]{{p}}[，|][哪个在前面|哪一个在前面|谁在前面|哪个更靠前|哪个挡住了另一个|谁遮住了谁|哪个在前|谁在前][？|呢？]{_WEI}#{_WEN}[靠前的|位于前面的|在前方的|挡在前面的|在前面的那个|遮住另一个的|处在前面的]是{{o}}还是{{p}}？#{_WEN}{{o}}还是{{p}}[在前面|在前|更靠前|挡在前面|位于前面]？#{_QING}[判断|说出|指出|回答|告诉我]{{o}}[和|与]{{p}}[哪个在前面|谁在前面|哪个在前]。",
    },
    "LOCATE_ASKS": {
        "en": f"{_ASK}[locate|find|mark|box|detect|give the box of|give the coordinates of|return the box of|draw a box around|show the position of|report the bounding box of|frame|ground|pinpoint] the {{o}}{_SEE}.{_END}#[Where is|Where's|Where do you see|Where can I find|Where in the picture is|At which coordinates is|What is the box of|What is the bounding box of|What are the coordinates of] the {{o}}{_SEE}?#[Box|Bounding box|Coordinates|Position|Location|bbox|Place] [of|for] the {{o}}[?|.|, please.|:| as x1, y1, x2, y2.]",
        "zh": f"{_WEN}{_TU}[那个|这个|]{{o}}[在哪|在哪里|在什么位置|的位置在哪|位于哪里|在何处|的方框是什么|的坐标是什么|的坐标是多少|的边界框是什么|的边框坐标是多少|在图中的位置|处在什么地方][？|呢？|?]{_WEI}#{_QING}[定位|找到|找出|标出|标注|框出|框选|圈出|检测|指出|给出|返回|输出|画出|确定|写出|提供|报告]{_TU}[的|那个|]{{o}}[。|的位置。|的方框。|的边界框。|的坐标。|的边框。|的框。|所在的位置。|所在方框。|，返回坐标。|，给出边界框。|并给出坐标。|并输出方框。]#{{o}}[的位置|的方框|的边界框|的坐标|的坐标框|边界框|坐标|的矩形框|的外框][？|。|：|是？|是什么？|为？]#[用|以][方框|边界框|坐标|矩形框][标出|表示|给出|指出|框出]{{o}}[。|的位置。]",
    },
    "INSPECT_ASKS": {
        "en": f"{_ASK}[inspect|check|examine|look over|test|assess|scan|review|judge|control] [this part|the part|this surface|the surface|the plate|this piece|the workpiece|the product|this item|the sample|it][ for defects| for damage| and report the defect| and give kind, box and cause| and answer in JSON| carefully|, return JSON|].{_END}#[Is there|Do you see|Can you find|Does this part have|Does the plate show|Has it got] [a defect|any defect|damage|any damage|a flaw|a fault|something wrong][ here| on the surface|]? [Report it as JSON.|Give defect, box and cause.|Answer with JSON.|Where, and why?|State kind, place and cause.|]#[Defect report|Quality report|Inspection report|Surface check|Inspection|Visual check|Defect inspection|Fault report|Quality inspection][.|, please.|: kind, box, cause.| as JSON.|: defect, box and cause.]#{_ASK}[report|give|list|return|describe|find|detect|state] [the defect|any defect|the damage|the flaw|defects] [with its box and cause|with position and cause|as JSON|, its place and its cause|and where it comes from].",
        "zh": f"{_QING}[检查|检测|检验|查看|看看|质检|审查|巡检|排查|评估|分析|查验|观察][这个零件|该零件|这块板|零件表面|表面|这个工件|该工件|产品表面|这个产品|部件|板材|样品|这件产品|此零件|图中零件|工件][。|的缺陷。|是否有缺陷。|有没有问题。|的质量。|的表面缺陷。|有无缺陷，并给出原因。|，输出JSON。|，报告缺陷。|并输出结果。|，用JSON回答。|并说明缺陷、位置和原因。|的外观。|，给出缺陷、方框和原因。|并报告。]#{_WEN}[这个零件|该零件|表面|这块板|这个工件|产品|图中零件|这件东西|工件][有没有缺陷|有缺陷吗|有什么缺陷|有损坏吗|有什么损伤|是否有缺陷|是否完好|哪里有问题|有什么毛病|是否损坏|有何缺陷|有什么瑕疵|有没有瑕疵][？|？在哪里？原因是什么？|？请给出位置和原因。|？用JSON回答。|？输出JSON。|，位置和原因？|？请报告。]#[缺陷检测|表面检测|表面检查|外观检查|外观检测|质量检查|质量检测|缺陷报告|视觉检测|瑕疵检测|产品质检|检验报告|做一次检查|做个质检|做外观检测|进行缺陷检测|进行表面检查|进行质检][。||，谢谢。|：缺陷、方框、原因。|，输出JSON。|，返回JSON。]#{_QING}[找出|找到|报告|给出|列出|指出|输出|描述|识别|定位|说明|返回|写出][缺陷|表面缺陷|零件的缺陷|瑕疵|损伤|问题所在|零件的问题|图中缺陷][。|及原因。|、位置和原因。|、方框和原因。|的种类、位置和原因。|，用JSON回答。|，以JSON输出。|并说明原因。|及其位置与成因。]#{_QING}[对|为|给][这个零件|该工件|表面|产品|此部件|这块板|图中零件][做|进行|作一次|做一次][检查|检测|质检|缺陷检测|表面检查|质量检查|检验|缺陷检查][。|，输出JSON。|并报告缺陷。|并给出结果。]",
    },
    "DEFECT_ASKS": {
        "en": f"[What|Which] [kind|type|sort|class] of [defect|flaw|damage|fault] [is it|is there|do you see|is shown|does it have|is visible|is present]?#{_ASK}[name|tell me|state|give|say|identify|classify] the [defect|damage|flaw|fault|type of defect|kind of damage]{_SEE}.{_END}#[Type|Class|Name|Kind|Sort] of [defect|damage|flaw|fault][?|.|:]#[What|Which] [flaw|fault|damage|defect] [is shown|do you find|does the part have|is visible|can be seen]{_SEE}?",
        "zh": f"{_WEN}{_TU}[是什么缺陷|是哪种缺陷|有哪种缺陷|缺陷是什么|是什么类型的缺陷|属于什么缺陷|是哪类缺陷|是何种损伤|的缺陷叫什么|的损伤是什么|是什么瑕疵|缺陷是哪种|的缺陷类型是什么|缺陷属于哪类|属于哪种缺陷|属于何种缺陷][？|呢？]{_WEI}#{_QING}[说出|指出|给出|判断|识别|写出|回答|告诉我|确定|说明|命名]{_TU}[缺陷|的缺陷|缺陷种类|缺陷类型|缺陷的类型|缺陷名称|损伤类型|瑕疵种类|缺陷类别|是哪种缺陷]。#[缺陷|损伤|瑕疵][种类|名称|类别|是什么|的种类|的名称|的类型|属于哪类][？|：|是？|。]",
    },
    "CHART_ASKS_v": {
        "en": f"[What is|What's|Which is] the [value|number|amount|height|figure|reading] [of|for|at|shown for] {{o}}{_SEE}?#{_ASK}[read|give|tell me|find|report|state|look up|say] the [value|number|amount|figure] [of|for|at|belonging to] {{o}}{_SEE}.{_END}#[{{o}}: what value|{{o}} stands at what value|{{o}} has which value|How large is {{o}}|How big is {{o}}|What does {{o}} show|What number belongs to {{o}}|How much does {{o}} reach]?#[Value|Number|Amount] [of|for|at] {{o}}[?|.|:|, please.]",
        "zh": f"{_WEN}{_TU}{{o}}[的数值|的值|的数据|对应的值|对应的数值|的数字|的数量|的高度|][是多少|为多少|是几|等于多少|有多少|多少|达到多少][？|呢？|?]{_WEI}#{_QING}[读出|读取|给出|说出|查出|写出|告诉我|回答|找出|报出|查一下|看看|读一下]{_TU}{{o}}[的数值|的值|的数据|对应的数值|的数字|对应的值|是多少][。||，谢谢。]#{{o}}[的数值|数值|的值|值|对应的数值][？|是？|：|为？|呢？]#{{o}}[有多大|有多少|多少|是几|到了多少|显示为多少]？",
    },
    "CHART_ASKS_max": {
        "en": f"[Which|What|Which one|Which label|Which entry|Which category|Which bar or point] [is the largest|is the highest|is the greatest|has the highest value|has the largest value|is at the top|has the most|reaches highest]{_SEE}?#{_ASK}[name|tell me|give|find|say|state] the [largest|highest|greatest|biggest|maximum] [one|entry|category|label|].{_END}#[Largest|Highest|Maximum|Greatest|Biggest] [one|entry|category|label][?|.|:]#[Where is the maximum|Where is the peak|What is the top label|Who leads]?",
        "zh": f"{_WEN}{_TU}[哪个最大|哪个最高|哪一个最大|哪项最大|哪一项最高|哪个的值最大|哪个数值最高|谁最大|谁最高|最大的是哪个|最高的是哪一个|最大值是哪个|数值最大的是哪个|哪个类别最大|最高值属于哪个|最大值在哪里][？|呢？|?]{_WEI}#{_QING}[说出|指出|找出|给出|写出|回答|告诉我]{_TU}[最大的|最高的|最大的一项|数值最大的|最高的一个|最大值对应的标签|数值最高的一项|最大的那个]。#[最大的|最高的|最大值|最大项|最高项|数值最高的][？|是？|：|是谁？|是哪项？]",
    },
    "CHART_ASKS_min": {
        "en": f"[Which|What|Which one|Which label|Which entry|Which category|Which bar or point] [is the smallest|is the lowest|is the least|has the lowest value|has the smallest value|is at the bottom|has the least]{_SEE}?#{_ASK}[name|tell me|give|find|say|state] the [smallest|lowest|least|minimum] [one|entry|category|label|].{_END}#[Smallest|Lowest|Minimum|Least] [one|entry|category|label][?|.|:]#[Where is the minimum|Where is the lowest point|Who is last]?",
        "zh": f"{_WEN}{_TU}[哪个最小|哪个最低|哪一个最小|哪项最小|哪一项最低|哪个的值最小|哪个数值最低|谁最小|谁最低|最小的是哪个|最低的是哪一个|最小值是哪个|数值最小的是哪个|哪个类别最小|最低值属于哪个|最小值在哪里][？|呢？|?]{_WEI}#{_QING}[说出|指出|找出|给出|写出|回答|告诉我]{_TU}[最小的|最低的|最小的一项|数值最小的|最低的一个|最小值对应的标签|数值最低的一项|最小的那个]。#[最小的|最低的|最小值|最小项|最低项|数值最低的][？|是？|：|是谁？|是哪项？]",
    },
    "CHART_ASKS_t": {
        "en": f"[What|Which] [is the trend|is the tendency|trend do you see|trend is shown|direction does the line take|direction does it go|is the direction|way does it go]{_SEE}?#{_ASK}[describe|name|tell me|say|state|give] the [trend|tendency|direction|development] of the [line|chart|values|data].{_END}#[Is it|Is the line|Are the values] rising, falling or flat?#[Does the line|Do the values|Does the chart] [go up or down|rise or fall|rise, fall or stay flat]?#[Trend|Direction|Tendency|Development] of the [line|chart|data][?|.|:]",
        "zh": f"{_WEN}{_TU}[折线|曲线|数据|数值|走势|图表|整体|][的趋势是什么|是什么趋势|呈什么趋势|是上升还是下降|是升还是降|走势如何|如何变化|怎么变化|的走势是什么|是上升、下降还是平稳|变化趋势如何|的变化趋势是什么][？|呢？|?]{_WEI}#{_QING}[说出|判断|描述|指出|给出|回答|说明|概括|告诉我]{_TU}[趋势|走势|变化趋势|数据的趋势|折线的走势|整体趋势|折线趋势|数据走势]。#[变化趋势|走势|整体趋势|总体走势|数据趋势][？|是？|：|如何？]",
    },
    "CHART_JSON_ASKS": {
        "en": f"{_ASK}[return|turn|convert|extract|read|give|list|transcribe|output|put|write|export] [the chart|this chart|the data|all values|the values|the chart data|every value|each label and value|labels and values|the numbers] [as JSON|into JSON|in JSON|to JSON|as a JSON list|as data|as label and value].{_END}#[Data|Values|Chart data|Labels and values|All numbers|Chart to JSON|Data table][, please.|.|: JSON.| as JSON.]#[What data|Which values|What numbers] does the chart [show|hold|contain]? [Answer in JSON.|Use JSON.|List label and value.]",
        "zh": f"{_QING}[把|将][图表|图|图中数据|这张图表|图表数据|图中的数值|所有数值|标签和数值][转成|转为|转换成|转换为|整理成|整理为|读成|写成|输出为|提取为|列为|导出为][JSON|JSON格式|JSON数据|JSON列表|数据列表|一个JSON]。#{_QING}[提取|列出|读出|读取|给出|输出|返回|写出|抽取|整理][图表|图中|图里|图表中|图表的|][数据|所有数据|全部数值|所有数值|标签和数值|每个标签和数值|各项数值|全部数据|每一项的数值|标签与值][。|，用JSON。|，输出JSON。|，以JSON返回。|，返回JSON。]#[图表|图中|这张图][有哪些数据|的数据是什么|显示了哪些数值|包含哪些数值]？[用JSON回答。|请输出JSON。|以JSON给出。]#[用|以]JSON[给出|输出|列出|返回|表示][图表数据|各项数值|所有数据|标签和数值|图中数据]。",
    },
    "GARMENT_ASKS": {
        "en": f"{_ASK}[describe|list|give|state|write|name|summarise|report|tell me] [the audience, occasion and fabric|audience, occasion, fabric|the points audience, occasion and fabric|target audience, occasion and fabric|audience and occasion and fabric|for whom, for what occasion and of which fabric]{_SEE}.{_END}#[Who wears it|Who is this for|For whom is it|Whom does it suit], [for what occasion|when is it worn|on which occasion|which occasion], [which fabric|what fabric|of what fabric|made of what]?#[Garment points|Product points|Key points|Short points|Summary|Selling points][: audience, occasion, fabric.|, please: audience, occasion and fabric.]",
        "zh": f"{_QING}[给出|列出|写出|描述|总结|说出|概括|说明|归纳|分析|提炼][这件衣服的|该服装的|图中服装的|衣服的|商品的|][人群、场合、面料|人群、场合和面料|适用人群、场合与面料|适合人群、场合、面料|人群、场合及面料|受众、场合和面料|目标人群、场合、面料][。|要点。|，分点写。||，谢谢。]#{_WEN}[这件衣服|它|该服装|图中衣服|这件服装][适合什么人|适合谁|给谁穿|适合哪类人|面向谁|是谁穿的]，[什么场合|何种场合|在什么场合穿|哪种场合|适合什么场合]，[什么面料|何种面料|哪种面料|面料是什么|用的什么面料]？#[人群、场合、面料|适用人群、场合、面料|受众、场合、面料][：|？|是什么？|要点。|如何？]",
    },
    "GARMENT_PART_ASKS": {
        "en": f"[What|Which] {{f}} [does it have|is this|is shown|do you see|has the garment|fits this garment|does this garment have]?#{_ASK}[state|give|tell me|name|say|identify|report|find] the {{f}}[ of this garment| of the clothing| of it|]{_SEE}.{_END}#[The {{f}}|{{f}} of the garment|Garment {{f}}|Its {{f}}][?|.|:|, please.]#[What is|What's] [its {{f}}|the garment's {{f}}|the {{f}} of this garment|the {{f}} here]?",
        "zh": f"{_WEN}[这件衣服的|衣服的|它的|该服装的|图中服装的|这件服装的|]{{f}}[是什么|是哪种|为何|是啥|属于哪种|是哪一种|如何][？|呢？|?]{_WEI}#{_QING}[说出|给出|写出|判断|识别|回答|告诉我|指出|描述|说明][这件衣服的|衣服的|它的|该服装的|]{{f}}[。||，谢谢。]#[这件衣服|该服装|衣服][是什么|属于什么|的]{{f}}？#{{f}}[呢？|是？|：|为？|是哪种？]",
    },
    "CONTRACT_ASKS": {
        "en": f"{_ASK}[list|extract|return|read|give|transcribe|output|copy|split out|write out|show] [the clauses|all clauses|every clause|each clause|the sections|the contract's clauses|all headings with their texts|heading and text of all clauses][ as JSON| as a list| with heading and text| of this page| of the contract|].{_END}#[Clauses|All clauses|Contract clauses|List of clauses|Clauses of the contract][, please.|.|: heading and text.| as JSON.]#[Which|What] clauses [are there|does it have|does the contract have|stand here|are on this page]? [List heading and text.|Answer in JSON.|Give heading and text.]#{_ASK}[turn|convert|put|break] [the page|this contract|the contract|this document] [into|to] [a list of clauses|clauses|a JSON list of clauses].",
        "zh": f"{_QING}[列出|提取|给出|读取|输出|返回|整理|抽取|写出|读出|列举|识别][合同的|合同|页面上的|图中|全部|所有|这份合同的|][条款|各条款|每一条款|条款列表|所有条款|每条的标题和内容|全部条文|条款标题与内容|各条内容][。|，用JSON。|，以JSON返回。|，输出JSON。|，包括标题和内容。|，谢谢。]#{_QING}[把|将][合同|这份合同|这一页|页面|条款|图中条款][转成|整理成|整理为|拆成|分成|转为|转换为|输出为][条款列表|列表|JSON|JSON列表|一条一条|条款JSON|标题和内容的列表]。#{_WEN}[合同|这份合同|图中|页面上][有哪些条款|包含哪些条款|的条款是什么|写了哪些条款|有什么条款]？[请列出。|用JSON回答。|给出标题和内容。|]",
    },
    "CLAUSE_ASKS": {
        "en": f"[What|Which text] [does the {{f}} clause say|stands under {{f}}|is stated under {{f}}|does {{f}} state|is said about {{f}}|is the text of {{f}}|does the section {{f}} say]?#{_ASK}[read|quote|give|copy|return|transcribe|write out|cite] [the text under|the clause|the section|the clause called|what stands under] {{f}}.{_END}#[Clause|Section|Text of the clause|Text of the section|Under] {{f}}[?|:|, please.]",
        "zh": f"{_WEN}[合同中|图中|][关于|]{{f}}[条款|一条|部分|那条|一节|][写了什么|的内容是什么|说了什么|怎么写的|是什么内容|是如何规定的|的规定是什么|怎么说|的文字是什么|规定了什么]？{_WEI}#{_QING}[读出|抄写|引用|给出|写出|摘录|返回|念出|提取|复述]{{f}}[条款|的条款|一条|的内容|的文字|部分|下的文字|这一条][。||，谢谢。]#{{f}}[条款|一条|这条|部分][的内容|内容|写的是|说的是|如何规定][？|：|。]",
    },
    "PICTURE_WORDS": {
        "en": "[In|About|For|Regarding|On] [picture {n}|image {n}|the {nth} picture|the {nth} image|the {nth} photo][: |, ]#[Take|See|Use|Look at] [picture {n}|image {n}|the {nth} image|the {nth} picture|the {nth} one]. #[Picture|Image|Photo] {n}[: |, | - ]",
        "zh": "[请看|看|关于|对于|针对|就|在|根据][图{n}|第{n}张图|第{n}张图片|图片{n}|第{n}幅图][，|：|中，|：]#[图{n}|第{n}张图片|第{n}张|图片{n}|第{n}幅图][，|：|中：|里，|中，]",
    },
}


@lru_cache(maxsize=256)
def _forms(table: str, lang: str) -> tuple[str, ...]:
    return tuple(PATTERNS[table][lang].replace("\\n", "\n").split("#"))


def expand(rng: Random, pattern: str) -> str:
    """One of the strings that the pattern stands for; inner brackets are chosen first."""
    while True:
        made = _GROUP.sub(lambda group: rng.choice(group[1].split("|")), pattern)
        if made == pattern:
            return made.strip(" ") if not made.startswith(" ") else made
        pattern = made


def compose(rng: Random, table: str, lang: str, kept: list[str]) -> str:
    """A wording by pattern that is none of the `kept` (held-out) ones; sentences begin with a capital."""
    while True:
        made = expand(rng, rng.choice(_forms(table, lang))).replace("  ", " ")
        if lang == "en" and made[:1].islower() and not made.startswith("{"):
            made = made[0].upper() + made[1:]
        if made not in kept:
            return made
