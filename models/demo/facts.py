"""Plain facts: topics with statements and questions, and sums that come out right.

The quantities of the sums are drawn from short tables on purpose: a model of two
million parameters can learn a table, and then the figures it writes are true.
"""

from grammar import a, number

# Each topic: the thing, a definition in several wordings, further statements (each
# with choices inside), and questions with answers.
TOPICS = {
    "a joule": {
        "define": [
            "A joule is the {unit|basic unit} of energy.",
            "The joule {is the unit in which energy is counted|measures energy}.",
            "One joule is the energy of one watt for one second.",
        ],
        "tell": [
            "{Lifting|To lift} an apple by one metre {takes|costs} about one joule.",
            "{A thousand joules make|There are a thousand joules in} a kilojoule, and a million {make|make up} a megajoule.",
            "One kilowatt hour is 3.6 million joules, {or|which is} 3.6 megajoules.",
            "One watt hour is 3,600 joules, because an hour has 3,600 seconds.",
            "A {person who rests|resting person} gives off about a hundred joules {each|every} second as heat.",
            "It takes about 4.2 joules to warm one gram of water by one degree.",
        ],
        "ask": [
            ("What is a joule?", "A joule is the unit of energy. {One watt for one second gives one joule.|It is one watt for one second.}"),
            ("How many joules are in a kilowatt hour?", "{There are 3.6 million joules in a kilowatt hour.|One kilowatt hour is 3.6 megajoules.} {That is a thousand watts for 3,600 seconds.|A thousand watts run for 3,600 seconds.}"),
            ("How many joules are in a watt hour?", "A watt hour is 3,600 joules, {because|since} an hour has 3,600 seconds."),
        ],
    },
    "a watt": {
        "define": [
            "A watt is the unit of power.",
            "One watt is one joule {per second|every second}.",
            "Power is measured in watts, and a watt {means|is} one joule per second.",
        ],
        "tell": [
            "Power says how fast energy {flows|is used}; energy says how much was used {in all|altogether}.",
            "A kilowatt is a thousand watts, and a megawatt is a million watts.",
            "A milliwatt is a thousandth of a watt.",
            "A small lamp {needs|draws} about eight watts, and a kettle {needs|draws} about two thousand.",
            "To {find|get} the energy, multiply the power by the time.",
            "{Volts times amperes give watts.|Multiply volts by amperes and you get watts.}",
        ],
        "ask": [
            ("What is a watt?", "A watt is the unit of power. {It means one joule per second.|One watt is one joule every second.}"),
            ("What is the difference between power and energy?", "Power is how fast energy {flows|is used}, and energy is how much was used in all. {Power is measured in watts and energy in joules.|We count power in watts and energy in joules.}"),
            ("How do you find energy from power?", "Multiply the power by the time. {A watt for a second is a joule.|Watts times seconds give joules.}"),
        ],
    },
    "heat": {
        "define": [
            "Heat is energy that moves from a warm thing to a {cold|cooler} one.",
            "Heat {always|by itself} flows from warm to cold.",
        ],
        "tell": [
            "Nearly all the energy that a {machine|processor|computer} uses ends as heat.",
            "A fan {carries|takes} heat away by moving air.",
            "Metal {carries|conducts} heat well, and wood and air do not.",
            "Friction turns motion into heat.",
            "{Wool|A thick blanket|Still air|Cork} keeps heat in because it {conducts badly|lets little heat pass}.",
            "A large surface gives heat away {faster|more quickly} than a small one.",
            "Hot air rises because it is lighter than cold air.",
        ],
        "ask": [
            ("What is heat?", "Heat is energy that moves from a warm thing to a {cold|cooler} one."),
            ("Why does a machine get warm?", "{Some of|Part of} the energy it uses is lost to friction and resistance, and {that part becomes heat|turns into heat}."),
            ("Why does metal feel cold?", "Metal conducts heat well, so it {takes|draws} the warmth out of your hand quickly."),
        ],
    },
    "a processor": {
        "define": [
            "A processor is the part of a computer that {does the arithmetic|carries out the instructions}.",
            "The processor {reads instructions and carries them out|does the work of a computer}, one small step after another.",
        ],
        "tell": [
            "{Each|Every} time a switch in a processor turns on or off, it uses a little energy.",
            "A processor that runs faster needs a higher voltage, and so it {uses more power|grows warmer}.",
            "When there is nothing to do, a processor {slows its clock|goes to sleep} to save energy.",
            "A processor often waits for memory, and waiting costs energy {too|as well}.",
            "{Fetching|To fetch} a number from memory costs {far|much} more energy than adding two numbers.",
            "A processor keeps the numbers it needs most in a small, fast memory called a cache.",
            "A heat sink and a fan keep a processor cool.",
            "Several cores can share the work, but they also share the {power|heat|memory}.",
        ],
        "ask": [
            ("Why does a processor get hot?", "Every switch {inside it|in it} uses a little energy when it turns on or off, and {all of that energy|that energy} becomes heat."),
            ("What is a processor?", "A processor is the part of a computer that {does the arithmetic|carries out the instructions}."),
            ("Why does a faster clock use more power?", "More switching happens every second, and the voltage must {rise|be higher} too. {Power grows with both.|Both raise the power.}"),
            ("What is a cache?", "A cache is a small, fast memory close to the processor. It keeps the numbers that are needed {most|often}, {so that fewer trips to the main memory are needed|and saves long trips to the main memory}."),
        ],
    },
    "memory": {
        "define": [
            "Memory is where a computer keeps the numbers it is working on.",
            "A computer's memory holds programs and data while they are {used|in use}.",
        ],
        "tell": [
            "Moving data costs energy, and {the longer the way, the more it costs|a long way costs more than a short one}.",
            "Memory must be refreshed many times a second, {even when nobody reads it|so it uses power even when it rests}.",
            "Bandwidth {says how many bytes can|is the number of bytes that can} be moved in one second.",
            "Smaller numbers need less memory, so a model in four bits {reads|moves} fewer bytes than a model in sixteen bits.",
            "A cache near the processor saves many trips to the main memory.",
        ],
        "ask": [
            ("Why does reading memory cost energy?", "The bits have to travel over wires, and {every wire must be charged and discharged|charging the wires takes energy}."),
            ("What is bandwidth?", "Bandwidth is the number of bytes that can be moved in one second."),
            ("Why do smaller numbers save energy?", "Smaller numbers take fewer bytes, and {moving fewer bytes costs less energy|fewer bytes have to be moved}."),
        ],
    },
    "a language model": {
        "define": [
            "A language model is a program that {writes|guesses} the next {piece|part} of a text.",
            "A language model reads a text and {guesses|predicts} what comes next.",
        ],
        "tell": [
            "A model reads the whole prompt first, and this part is called prefill.",
            "After the prompt, a model writes one token at a time, and this part is called decode.",
            "In decode, all the weights are read from memory for {each|every} new token.",
            "Prefill is limited by arithmetic, and decode is {often |}limited by memory.",
            "A token is a short piece of text, such as a word or {part of a word|a few letters}.",
            "A smaller model needs fewer joules for {each|every} token.",
            "When several texts are written at once, the weights are read once for all of them, so each token costs less.",
            "The attention of a model looks back at the words that came before.",
        ],
        "ask": [
            ("What is a token?", "A token is a short piece of text, such as a word or part of a word."),
            ("What is prefill?", "Prefill is the first part of the work, when the model reads the whole prompt {at once|in one go}."),
            ("What is decode?", "Decode is the part in which the model writes new tokens, one {after another|at a time}."),
            ("Why does a token cost energy?", "{For|To write} each token the model must read its weights from memory and {do many sums|multiply many numbers}, and both cost energy."),
            ("Why does a batch save energy?", "The weights are read once for {all|all the} texts in the batch, so {each token costs less|the cost of reading is shared}."),
        ],
    },
    "a battery": {
        "define": [
            "A battery stores energy in {chemicals|a chemical form}.",
            "A battery is a store of energy that {gives it back|can be carried} as electric current.",
        ],
        "tell": [
            "A battery loses some of its strength {in the cold|when it is cold}.",
            "Charging a battery {always takes|takes} a little more energy than it gives back.",
            "A battery that is {fully|completely} empty for a long time may be damaged.",
            "The size of a battery is often given in watt hours.",
            "{Two cells in a row give|Putting two cells in a row gives} twice the voltage.",
            "A battery wears out {slowly|a little} with every charge.",
        ],
        "ask": [
            ("How does a battery store energy?", "A battery stores energy in chemicals. When {it is used|a current flows}, the chemicals change, and when it is charged they change back."),
            ("Why is a battery weak in winter?", "The chemicals inside {work|react} more slowly when it is cold, so the battery gives less {power|current}."),
            ("How long does a battery last?", "Divide its energy by the power {that is drawn|of the device}. A battery of 50 watt hours feeds a device of 10 watts for 5 hours."),
        ],
    },
    "a motor": {
        "define": [
            "A motor turns electric energy into motion.",
            "An electric motor {uses magnets and current to make|makes} something turn.",
        ],
        "tell": [
            "A good electric motor turns more than nine tenths of its energy into motion.",
            "The rest {becomes|is lost as} heat in the wires and the bearings.",
            "A motor draws the most current when it {starts|begins to turn}.",
            "When a motor is turned by hand, it {works as|becomes} a generator.",
            "Oil in the bearings {lowers|reduces} friction and saves energy.",
        ],
        "ask": [
            ("What does a motor do?", "A motor turns electric energy into motion."),
            ("Why does a motor need oil?", "Oil {lowers|reduces} the friction in the bearings, so {less energy is lost as heat|the motor runs cooler and lasts longer}."),
            ("Can a motor make electricity?", "Yes. When something turns a motor, it works as a generator and {gives|makes} current."),
        ],
    },
    "a lamp": {
        "define": [
            "A lamp turns electric energy into light and {some |}heat.",
            "A lamp gives light, and {always |}a little heat as well.",
        ],
        "tell": [
            "An old bulb turned only about a twentieth of its energy into light.",
            "A modern lamp gives the same light for {about |}a sixth of the energy.",
            "A lamp of ten watts that burns for a hundred hours uses one kilowatt hour.",
            "White walls {throw back|reflect} light, so a small lamp is enough in a white room.",
            "{Turning|Switching} off a lamp in an empty room is the {easiest|simplest} way to save energy.",
        ],
        "ask": [
            ("Why are old bulbs wasteful?", "An old bulb turns {most|nearly all} of its energy into heat and only {a small part|about a twentieth} into light."),
            ("How much energy does a lamp use?", "A lamp of ten watts uses ten watt hours in an hour, {or|which is} 36,000 joules."),
        ],
    },
    "a train": {
        "define": [
            "A train carries many people with little energy.",
            "A train runs on steel wheels, {which roll with very little friction|and steel on steel rolls easily}.",
        ],
        "tell": [
            "Steel wheels on steel rails roll {easily|with little friction}, so a train needs less energy than a {lorry|row of cars}.",
            "When an electric train brakes, its motors {can |}give energy back to the line.",
            "A train that goes twice as fast has four times the energy of motion.",
            "Air resistance grows with the square of the speed.",
            "A long train is {heavy|hard to start}, but it is {easy|cheap} to keep moving.",
            "Going downhill, a train can {win|get} back part of what the climb has cost.",
        ],
        "ask": [
            ("Why does a train need so little energy?", "Steel wheels roll with little friction, and {many people share one train|the train is long and thin, so the air slows it little}."),
            ("What happens when an electric train brakes?", "Its motors work as generators and {give energy back to the line|turn motion back into electricity}."),
        ],
    },
    "a kettle": {
        "define": [
            "A kettle heats water with an electric {element|wire}.",
            "An electric kettle turns {almost|nearly} all its energy into hot water.",
        ],
        "tell": [
            "A kettle is one of the {strongest|most powerful} machines in a {house|kitchen}, but it runs for only a few minutes.",
            "Heating one litre of water from 20 to 100 degrees takes about 336 kilojoules.",
            "Boiling only as much water as you need saves {time and energy|both time and energy}.",
            "Limescale {in|inside} a kettle keeps the heat from the water and wastes {energy|time}.",
            "A lid keeps the heat in{, so the water boils sooner|}.",
        ],
        "ask": [
            ("How much energy does it take to boil a litre of water?", "{It takes about|You need about} 336 kilojoules to heat one litre from 20 to 100 degrees, {which is|or} 93 watt hours."),
            ("Why does a kettle boil faster with a lid?", "The lid keeps the {steam and heat|heat} inside, so {less energy is lost to the air|more of the heat goes into the water}."),
        ],
    },
    "the sun": {
        "define": [
            "The sun {sends|gives} light and heat to the Earth.",
            "Nearly all the energy we use came from the sun {at first|long ago or today}.",
        ],
        "tell": [
            "At noon {in summer|on a clear day}, the sun brings about a thousand watts to {each|every} square metre of ground.",
            "A solar panel turns about a fifth of the sunlight into electricity.",
            "Clouds {take away|block} most of the light, so a panel gives {little|less} on a grey day.",
            "Plants store sunlight in {leaves and wood|sugar and wood}.",
            "The sun drives the wind and the rain as well.",
        ],
        "ask": [
            ("How does a solar panel work?", "Light knocks electrons loose in the panel, and {they flow as a current|the moving electrons make a current}."),
            ("Why does a solar panel give less on a cloudy day?", "Clouds block {much|most} of the light, and {less light makes less current|a panel needs light to make current}."),
        ],
    },
    "the wind": {
        "define": [
            "Wind is air in motion, and moving air {carries|has} energy.",
            "A wind turbine turns the energy of moving air into electricity.",
        ],
        "tell": [
            "When the wind blows twice as fast, it carries eight times the power.",
            "A turbine must be stopped in a storm, or its blades {could|may} break.",
            "{Over the sea|On a hill} the wind is {stronger and steadier|stronger} than {in a valley|in the town}.",
            "A long blade {catches|sweeps} more wind than a short one.",
        ],
        "ask": [
            ("Why do wind turbines stand on hills?", "The wind is stronger {on a hill|high up}, because {nothing stands in its way|trees and houses do not slow it}."),
            ("How does a wind turbine make power?", "The wind pushes the blades, the blades turn a generator, and {the generator makes current|the current flows to the town}."),
        ],
    },
    "a water wheel": {
        "define": [
            "A water wheel takes energy from {falling|running} water.",
            "Falling water {can turn|turns} a wheel, and the wheel can {drive|turn} a mill or a generator.",
        ],
        "tell": [
            "The higher the water falls, the more energy {it gives|each litre gives}.",
            "A dam stores energy by {holding|keeping} water high up.",
            "One litre of water that falls ten metres gives about 98 joules.",
            "A turbine {under|below} a dam turns {nine tenths|most} of that energy into electricity.",
        ],
        "ask": [
            ("How does a dam store energy?", "A dam {holds|keeps} water high up. When the water falls, it turns a turbine and gives {back its energy|the energy back}."),
        ],
    },
    "a refrigerator": {
        "define": [
            "A refrigerator pumps heat out of a {cold box|box} into the room.",
            "A refrigerator does not make cold; it moves heat {out|away}.",
        ],
        "tell": [
            "The back of a refrigerator is warm because the heat {comes out|leaves} there.",
            "Each time the door is opened, warm air {flows|comes} in and must be cooled.",
            "Ice on the walls makes the machine work harder.",
            "A full refrigerator stays cold longer than an empty one.",
        ],
        "ask": [
            ("Why is the back of a refrigerator warm?", "The machine pumps heat from the inside to the back, {where it goes into the room|and the room takes it up}."),
            ("Why should the door of a refrigerator stay shut?", "Warm air {flows|comes} in when the door is open, and the machine must pump that heat out again."),
        ],
    },
    "a bicycle": {
        "define": ["A bicycle turns the work of the legs into motion with very little loss.", "A bicycle is {one of the best|among the best} machines for turning food into distance."],
        "tell": [
            "A steady rider gives about a hundred watts.",
            "Soft tyres {waste|cost} energy because they bend at {every|each} turn.",
            "A {clean|well oiled} chain passes on nearly all the power of the legs.",
            "At high speed most of the work goes into pushing the air aside.",
            "A low gear makes a hill easier, {but it takes more turns|but the work is the same}.",
        ],
        "ask": [("How much power does a cyclist give?", "A steady rider gives about a hundred watts, and a strong one {gives|can give} three hundred for a while."), ("Why do soft tyres slow a bicycle?", "A soft tyre bends as it rolls, and bending turns energy into heat.")],
    },
    "a meter": {
        "define": ["An energy meter counts how much energy {has passed|was used}.", "A meter shows the power now and the energy {so far|since it was started}."],
        "tell": [
            "{To measure well, wait|Wait} until the machine is quiet before you note the idle power.",
            "A reading without its uncertainty is only half a reading.",
            "A slow meter cannot see a short event, {but it can see many of them together|so short events must be repeated}.",
            "The energy of the work is the total energy less the idle energy.",
            "Repeat a measurement {several|a few} times, and the mean grows more certain.",
        ],
        "ask": [("What does an energy meter count?", "It counts the energy that has passed through it, {in joules or kilowatt hours|often in kilowatt hours}."), ("Why should a measurement be repeated?", "{Each|Every} reading has a small error, and the mean of many readings is more certain than one."), ("What is idle power?", "Idle power is what a machine uses when it {is on but does nothing|has no work to do}.")],
    },
    "efficiency": {
        "define": ["Efficiency is the share of the energy that does {useful work|what we want}.", "The efficiency of a machine is useful energy divided by the energy {put in|it takes}."],
        "tell": [
            "No machine has an efficiency of more than one hundred percent.",
            "A machine with an efficiency of 80 percent wastes one fifth of its energy.",
            "The fastest way is not always the cheapest {way|one}, and the slowest is not always the {cheapest|best} either.",
            "Finishing early and then sleeping {can use|often uses} less energy than working slowly for a long time.",
            "The energy that is not used is the cheapest {energy|of all}.",
        ],
        "ask": [("What is efficiency?", "Efficiency is the share of the energy that does useful work."), ("Can a machine give more energy than it takes?", "No. Energy {is never made from nothing|cannot be made from nothing}; it only changes its form.")],
    },
    "energy": {
        "define": ["Energy is the ability to do work.", "Energy is never made or lost; it only changes its form."],
        "tell": [
            "Motion, heat, light and {electricity|current} are forms of energy.",
            "A stone on a high shelf has energy because it can fall.",
            "Food, wood and {coal|oil} hold energy in a chemical form.",
            "When energy changes its form, some of it {always|nearly always} ends as heat.",
            "A moving thing has energy, and when it moves twice as fast it has four times as much.",
        ],
        "ask": [("What is energy?", "Energy is the ability to do work. {It can be motion, heat, light or electricity.|It takes many forms, such as heat, light and motion.}"), ("Where does the energy of a machine go?", "{Some|Part} of it does useful work, and {the rest|all of it in the end} becomes heat."), ("Can energy be lost?", "No. Energy only changes its form, {but|though} it may turn into heat that we cannot use.")],
    },
    "a fan": {
        "define": ["A fan moves air {and carries heat away|to carry heat away}.", "A fan turns electric energy into moving air."],
        "tell": [
            "A fan that turns twice as fast needs about eight times the power.",
            "Dust in a {fan|heat sink} keeps the air from flowing.",
            "A large, slow fan is quieter than a small, fast one.",
            "A fan does not cool the air; it only {moves it|carries the warm air away}.",
        ],
        "ask": [("Why does a computer need a fan?", "The parts of a computer turn electricity into heat, and {the fan carries the heat away|without moving air they would grow too hot}."), ("Why is a clean fan better?", "Dust blocks the air, so a {dirty|dusty} fan must turn faster to {carry away the same heat|cool the same machine}.")],
    },
}

LINKS = ["", "", "", "", "Besides, ", "Also, ", "In practice, ", "As a rule, ", "It is worth knowing that ", "Remember that ", "Of course, "]

# name, usual power in watts
APPLIANCES = [
    ("lamp", 10), ("fan", 40), ("laptop", 50), ("radio", 5), ("kettle", 2000), ("heater", 1500), ("oven", 2500),
    ("pump", 200), ("drill", 600), ("small server", 300), ("graphics card", 250), ("processor", 80), ("motor", 500),
    ("router", 8), ("freezer", 100), ("toaster", 900), ("washing machine", 1000), ("screen", 30), ("vacuum cleaner", 800),
]
HOURS = [1, 2, 3, 4, 5, 6, 8, 10, 12, 20, 24]
LOWER = "abcdefghijklmnopqrstuvwxyz"


def join(link, sentence):
    """The sentence after a linking phrase, with its capital moved where needed.

    An instruction stands without a link: "remember that repeat it" is no English.
    """
    if sentence.startswith(("Wait", "Repeat", "Multiply", "To ")):
        return sentence
    return link + (sentence[0].lower() + sentence[1:] if link else sentence)


def energy_text(watt_hours):
    return f"{number(watt_hours / 1000)} kilowatt hours" if watt_hours >= 1000 and watt_hours != 1000 else (
        "1 kilowatt hour" if watt_hours == 1000 else f"{number(watt_hours)} watt hours")


def joules_text(joules):
    if joules >= 1e6:
        return f"{number(joules / 1e6)} megajoules"
    if joules >= 1e3:
        return f"{number(joules / 1e3)} kilojoules"
    return f"{number(joules)} joules"


def topic_paragraph(w):
    """A definition and some statements of one topic, now and then a neighbour."""
    name = w.pick(list(TOPICS))
    topic = TOPICS[name]
    parts = [w.say(w.pick(topic["define"]))]
    for statement in w.sample(topic["tell"], w.rng.randint(2, 5)):
        parts.append(join(w.pick(LINKS), w.say(statement)))
    if w.chance(0.35):
        other = w.pick([key for key in TOPICS if key != name])
        parts.append(w.say("{The same is true in small things and in large ones.|This leads to another thing, and that is $other.|"
                           "To understand this well, it helps to think about $other.}", other=other))
        parts.append(w.say(w.pick(TOPICS[other]["define"])))
        parts.append(w.say(w.pick(TOPICS[other]["tell"])))
    return " ".join(parts)


def question_page(w):
    """One to four questions with answers, marked or as plain text."""
    style = w.rng.randint(0, 2)
    pairs = []
    for name in w.sample(list(TOPICS), w.rng.randint(1, 4)):
        question, answer = w.pick(TOPICS[name]["ask"])
        answer = w.say(answer)
        if w.chance(0.4):
            answer += " " + w.say(w.pick(TOPICS[name]["tell"]))
        if style == 0:
            pairs.append(f"Question: {question}\nAnswer: {answer}")
        elif style == 1:
            pairs.append(f"{question} {answer}")
        else:
            pairs.append(f"{question}\n{answer}")
    return ("\n\n" if style != 1 else "\n").join(pairs)


def appliance_sum(w):
    """Power times time, both in watt hours and in joules."""
    name, watts = w.pick(APPLIANCES)
    hours = w.pick(HOURS)
    wh = watts * hours
    unit = "hour" if hours == 1 else "hours"
    names = dict(name=name, an=a(name), watts=number(watts), hours=number(hours), unit=unit,
                 wh=energy_text(wh), joules=joules_text(wh * 3600))
    return w.say(w.pick([
        "$An draws $watts watts. In $hours $unit it uses $wh, {which is|or} $joules.",
        "Question: How much energy does $an of $watts watts use in $hours $unit?\nAnswer: Multiply the power by the time: $watts watts times $hours $unit {gives|is} $wh. {In joules this is $joules.|That is $joules.}",
        "If $an of $watts watts runs for $hours $unit, it uses $wh. {That is $joules.|In joules, that is $joules.}",
        "How much does $an use? It {needs|draws} $watts watts, so after $hours $unit the meter shows $wh. {Every hour has 3,600 seconds, and the same energy is $joules.|Counted in joules, it is $joules.}",
    ]), **names)


def water_sum(w):
    """Heating water: 4.2 kJ per kilogram and degree."""
    litres = w.pick([0.25, 0.5, 1, 1.5, 2])
    power = w.pick([1000, 1500, 2000])
    kilojoules = litres * 4.2 * 80
    seconds = round(kilojoules * 1000 / power)
    amount = {0.25: "a quarter of a litre", 0.5: "half a litre", 1: "one litre", 1.5: "one and a half litres", 2: "two litres"}[litres]
    return w.say(w.pick([
        "To heat $amount of water from 20 to 100 degrees takes $kj kilojoules. A kettle of $power watts {does it|does this} in about $s seconds.",
        "Question: How long does a kettle of $power watts need to boil $amount of water?\nAnswer: The water needs $kj kilojoules to go from 20 to 100 degrees. Divided by $power watts, that is about $s seconds.",
        "{Fill|Put} $amount of water {into|in} a kettle of $power watts. It takes $kj kilojoules to bring it from 20 degrees to the boil, so you wait about $s seconds.",
    ]), amount=amount, kj=number(kilojoules), power=number(power), s=seconds)


def token_sum(w):
    """Joules per token of a text written at a power and a speed."""
    watts = w.pick([10, 20, 40, 60, 80, 100, 200, 300])
    speed = w.pick([5, 10, 20, 40, 50, 100])
    tokens = w.pick([50, 100, 200, 500])
    each = watts / speed
    return w.say(w.pick([
        "A computer draws $watts watts while it writes $speed tokens {per|every} second. {Each token costs|So each token costs} $each joules, and a text of $tokens tokens costs $all joules.",
        "Question: A model writes $speed tokens per second at $watts watts. What does one token cost?\nAnswer: Divide the power by the speed: $watts divided by $speed is $each joules for each token. A text of $tokens tokens takes $all joules.",
        "At $watts watts and $speed tokens per second, one token costs $each joules. {For $tokens tokens that makes|A page of $tokens tokens takes} $all joules.",
    ]), watts=watts, speed=speed, each=number(each), tokens=tokens, all=number(each * tokens))


def battery_sum(w):
    """How long a battery feeds a device."""
    hours = w.pick([2, 3, 4, 5, 6, 8, 10, 20])
    name, watts = w.pick([item for item in APPLIANCES if item[1] <= 300])
    return w.say(w.pick([
        "A battery of $wh watt hours feeds $an of $watts watts for $hours hours, {because|since} $wh divided by $watts is $hours.",
        "Question: How long can $an of $watts watts run on a battery of $wh watt hours?\nAnswer: Divide the energy by the power. $Wh divided by $watts is $hours, so {it runs|the $name runs} for $hours hours.",
    ]), wh=number(watts * hours), an=a(name), name=name, watts=number(watts), hours=hours)


def compare_sum(w):
    """Two machines doing one job: power against time."""
    job, slow, fast = w.pick([
        ("wash the clothes", "old machine", "new machine"), ("pump the tank full", "small pump", "large pump"),
        ("sort the numbers", "slow program", "fast program"), ("write the report", "large model", "small model"),
        ("grind the corn", "old mill", "new mill"), ("cut the boards", "long saw", "round saw"),
        ("cool the hall", "small fan", "large fan"),
        ("send the picture", "long way", "short way"), ("bake the bread", "big oven", "small oven")])
    first_watts, first_minutes = w.pick([(100, 60), (200, 60), (300, 60), (100, 30), (200, 30), (400, 30), (600, 20), (300, 20)])
    second_watts, second_minutes = w.pick([(150, 20), (300, 10), (200, 15), (120, 30), (600, 10), (50, 60), (60, 30), (90, 20)])
    first, second = first_watts * first_minutes / 60, second_watts * second_minutes / 60
    if first == second:
        return compare_sum(w)
    winner, loser = (slow, fast) if first < second else (fast, slow)
    return w.say(w.pick([
        "The $slow draws $p1 watts and takes $t1 minutes to $job. The $fast draws $p2 watts and takes $t2 minutes. The first uses $e1 watt hours and the second $e2, so the $winner is cheaper{ to run|}.",
        "Which is better, the $slow or the $fast? To $job, the $slow needs $p1 watts for $t1 minutes, which is $e1 watt hours. The $fast needs $p2 watts for $t2 minutes, which is $e2 watt hours. {So the $winner saves energy.|The $loser wastes the difference.}",
    ]), job=job, slow=slow, fast=fast, p1=first_watts, t1=first_minutes, p2=second_watts, t2=second_minutes,
        e1=number(first), e2=number(second), winner=winner, loser=loser)


def unit_table(w):
    """Conversions between units, a few in a row."""
    rows = [
        "One kilowatt hour is 3.6 megajoules.", "One watt hour is 3,600 joules.", "One kilojoule is 1,000 joules.",
        "One megajoule is a million joules.", "One kilowatt is 1,000 watts.", "One megawatt is a million watts.",
        "One watt is 1,000 milliwatts.", "One joule is 1,000 millijoules.", "One milliwatt for one second is one millijoule.",
        "One hour is 3,600 seconds.", "One minute is 60 seconds.", "Ten kilowatt hours are 36 megajoules.",
        "Half a kilowatt hour is 1.8 megajoules.", "One watt for one second is one joule.", "One kilowatt for one hour is one kilowatt hour.",
    ]
    opening = w.say("{Here are some units of energy and power.|It helps to know these by heart.|Units are easy once you know a few of them.|A short list of units:}")
    return opening + " " + " ".join(w.sample(rows, w.rng.randint(3, 6)))


def sums(w):
    """One to three sums of different kinds."""
    kinds = w.sample([appliance_sum, water_sum, token_sum, battery_sum, compare_sum], w.rng.randint(1, 3))
    return "\n\n".join(kind(w) for kind in kinds)
