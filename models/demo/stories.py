"""Short stories about people and machines, with a cause, a turn and an end.

Each story keeps its state in names (who, where, which machine, how much), so that
what happens later agrees with what was said before.
"""

from grammar import a, number

PEOPLE = [("Mara", "she"), ("Tom", "he"), ("Ines", "she"), ("Paul", "he"), ("Lena", "she"), ("Oskar", "he"), ("Ada", "she"), ("Ben", "he"),
          ("Nora", "she"), ("Emil", "he"), ("Ruth", "she"), ("Jonas", "he"), ("Clara", "she"), ("Hugo", "he"), ("Mina", "she"), ("Karl", "he"),
          ("Sara", "she"), ("Leo", "he"), ("Vera", "she"), ("Max", "he"), ("Olga", "she"), ("Finn", "he"), ("Anna", "she"), ("Sam", "he"),
          ("Iris", "she"), ("Theo", "he"), ("Rosa", "she"), ("Felix", "he"), ("Greta", "she"), ("Simon", "he"), ("Wanda", "she"), ("Arthur", "he")]
ROLES = ["engineer", "baker", "miller", "teacher", "clock maker", "fisher", "farmer", "driver", "student", "nurse", "librarian", "carpenter", "programmer", "gardener", "mechanic"]
PLACES = ["village by the river", "small town in the hills", "town by the sea", "house at the edge of the forest", "narrow street near the station",
          "harbour town", "quiet valley", "large old city", "hamlet behind the hill", "village under the mountain"]
WEATHER = ["{One|On a} cold morning{ in winter|}", "{On a|One} rainy evening", "One summer day", "On a grey day in autumn", "Late {at|one} night", "Early in spring",
           "On a windy afternoon", "One quiet Sunday", "After a long storm", "On the first day of {winter|the year|school}", "Before sunrise"]
FEEL = ["glad", "proud", "tired but happy", "surprised", "content", "quiet for a moment", "pleased"]
LESSONS = [
    "{First|Always} measure, then {change|improve}.", "What you do not measure, you {only guess|cannot improve}.", "The cheapest energy is the energy that nobody needs.",
    "Small losses add up when {nobody looks|they never stop}.", "A slow {answer|path} is not always a cheap one.", "Every joule goes somewhere; {you only have to look|one only has to follow it}.",
    "A machine does what it is told, so tell it {well|carefully}.", "Power is how fast, and energy is how much.", "It is better to carry less than to pull harder.",
]


def cast(w):
    """Two people and where they live."""
    (who, he), (friend, fhe) = w.sample(PEOPLE, 2)
    his = {"he": "his", "she": "her"}
    him = {"he": "him", "she": "her"}
    return dict(who=who, he=he, his=his[he], him=him[he], friend=friend, fhe=fhe, fhis=his[fhe], fhim=him[fhe],
                role=w.pick(ROLES), place=w.pick(PLACES), feel=w.pick(FEEL))


def opening(w, c):
    when = w.say(w.pick(WEATHER))
    return w.say(w.pick([
        "$who {was|worked as} $arole in a $place.",
        "Once upon a time there was $arole {called|named} $who, who lived in a $place.",
        "In a $place lived $arole {called|named} $who.",
        "$when, $who {sat at the window|was in the workshop|went out for a walk|was {still |}at work|looked out of the window|sat at the {table|desk}}.",
        "$when, $who and $friend {met in the workshop|sat in the kitchen|walked home together|stood at the door}.",
        "$who and $friend were {neighbours|good friends|brother and sister in all but name|old friends} in a $place.",
        "{Everybody|Everyone} in the $place knew $who, the $role.",
    ]), arole=a(c["role"]), when=when, **c)


def lesson(w, c):
    return w.say(w.pick([
        "\"$l\" said $who{ with a smile|}.".replace("$l\"", "$lc\""), "$l", "And $friend {wrote|noted} in $fhis book: $l", "Since {then|that day}, $who {likes to say|always says}: \"$l\"",
        "{From that day on|After that}, $who {measured before guessing|looked at the meter first|never guessed again}.", "$who was $feel{, and so was $friend|}.",
        "They {laughed|smiled} and {put the kettle on|went home|drank their tea}.", "That {evening|night}, $who slept well.",
    ]), l=(l := w.say(w.pick(LESSONS))), lc=l[:-1] + ",", **c)


CULPRITS = [
    # thing, watts, clue, cause, remedy, in short
    ("old freezer in the cellar", 120, "there was a puddle on the floor and a soft hum in the dark", "its door did not close {well|any more}, so warm air came in and the machine never rested", "put in a new seal and scraped the ice away", "freezer"),
    ("pump in the garden", 300, "the ground was wet although it had not rained", "a pipe was broken and the pump ran day and night", "mended the pipe", "pump"),
    ("heater in the empty guest room", 1500, "one window was warm from outside", "somebody had left it on after the last visit", "turned it off", "heater"),
    ("small server under the stairs", 200, "the wall was warm to the hand", "a program was asking the same question a thousand times a second", "told the program to wait until there was news", "server"),
    ("lamp in the attic", 60, "a thin line of light came through the boards", "the switch had been forgotten years ago", "turned it off and put in a better bulb", "lamp"),
    ("fan in the workshop", 90, "dust was dancing in the air although no machine was running", "its filter was full of dust, so it turned at full speed and moved hardly any air", "cleaned the filter", "fan"),
    ("water boiler in the bathroom", 800, "the pipes were hot in the middle of the night", "its thermostat was broken and it boiled the water again and again", "changed the thermostat", "boiler"),
    ("graphics card in the office", 150, "its fan was humming although the screen was dark", "a window that nobody saw was drawn again and again", "closed the window", "card"),
]


def detective(w):
    """A meter reads too much; somebody looks for the cause and finds it."""
    c = cast(w)
    thing, watts, clue, cause, remedy, short = w.pick(CULPRITS)
    kwh = watts * 24 / 1000
    c.update(thing=thing, watts=number(watts), clue=clue, cause=w.say(cause), remedy=remedy, short=short, kwh=number(kwh), saved=number(kwh), bill=w.pick([10, 20, 30, 40, 50]))
    return " ".join(filter(None, [
        opening(w, c),
        w.say("{One day|Then} the bill for electricity came, and it was {far|much} too high.|The meter in the hall {turned|counted} faster than it should.".join(["{", "}"])),
        w.say("\"{This|That} cannot be right,\" said $who. \"{We used nothing new|Nothing has changed in this house}.\"|$who wondered {where all the energy went|who used so much power}.".join(["{", "}"]), **c),
        w.say("{So $he|$who} {switched|turned} off everything {that could be found|in the house}, one thing after {another|the other}, and {looked at the meter|read the meter} {each time|after each step}.", **c),
        w.say("{In the end everything seemed to be off, but|Everything was dark and still, but} the meter {still showed|went on showing} $watts watts.", **c),
        w.say("{\"Something is still running,\" said $friend. |$friend came to help. |}They {went|walked} from room to room {and listened|with a lamp}, {until|and then} $friend {noticed|saw} that $clue.", **c),
        w.say("It was the $thing.{ $Cap.| \"Look,\" said $friend, \"$cause.\"}", cap=c["cause"], **c),
        w.say("{$Watts watts, day and night, make $kwh kilowatt hours a day.|In one day that made $kwh kilowatt hours.|}", **c),
        w.say("$Who $remedy, and the meter {came to rest|stood still|was quiet at last}.", **c),
        lesson(w, c),
    ]))


def battery_trip(w):
    """Energy runs short on the way; using less brings them home."""
    c = cast(w)
    vehicle, uses, save = w.pick([
        ("electric boat", "the motor", "went at half the speed, because the water resists a slow boat much less"),
        ("electric bicycle", "the motor", "rode slowly and {pedalled|used $his own legs} on the flat road"),
        ("small electric car", "the heater", "turned off the heater and put on a thick coat"),
        ("electric cart", "the load", "left half of the load {with a farmer|behind} and drove on with the rest"),
        ("delivery robot", "the camera", "told it to switch off its camera and follow the white line"),
        ("old electric van", "the speed", "drove at fifty instead of ninety, because the air resists a slow van much less"),
    ])
    goal = w.pick(["the market", "the next town", "the school", "the harbour", "$friend's house", "the hospital", "the station"]).replace("$friend", c["friend"])
    c.update(vehicle=vehicle, uses=uses, goal=goal, percent=w.pick([8, 10, 12, 15, 20]), km=w.pick([5, 8, 10, 12, 15]), left=w.pick([1, 2, 3]), cargo=w.pick(["bread", "medicine", "letters", "books", "apples", "milk", "lamps"]))
    return " ".join(filter(None, [
        opening(w, c),
        w.say("$Who {had|owned} an $vehicle and {wanted|had} to bring {some |}$cargo to $goal.".replace("an $vehicle", a(vehicle)), **c),
        w.say("{Halfway there|Behind the second bridge|In the middle of the way}, $he looked at the battery: {it had|there was} only $percent percent left, and {there were still|it was still} $km kilometres to go.", **c),
        w.say("{The night had been cold, and a cold battery gives less.|The wind came from the front and {took|cost} more energy than {planned|usual}.|The {road|way} {was longer|had been harder} than $he had thought.|$Who had forgotten to charge it {overnight|the day before}.}", **c),
        w.say("\"{If we go on like this|At this rate}, we {will not arrive|shall stop in the dark},\" {thought|said} $who. {\"What uses the most?\"|So $he began to calculate.|$He {stopped and |}thought about it.}", **c),
        w.say("{It was $uses.|The answer was $uses.|Most of the energy went into $uses.} {So $he|$Who} " + save + ".", **c),
        w.say("{Now the battery {fell|went down} more slowly.|At once the power {fell|dropped} to less than half.|The needle of the meter {sank|went down}, and the way grew shorter.}", **c),
        w.say("{With|When} $left percent left{,| in the battery,} $who {reached|came to} $goal.".replace("{With|When} $left percent left{,| in the battery,}", "With $left percent left in the battery,"), **c),
        w.say("{$Friend was {waiting|standing} at the door{ with a lamp| and waved|}.|\"You are late,\" said $friend, \"but you are here.\"|The $cargo {was|had arrived} safe, and $friend was happy.|}".replace("was|had arrived} safe", "arrived safely|arrived in good order}"), **c),
        lesson(w, c),
    ]))


def tea(w):
    """Water, a kettle, and how much of it is needed."""
    c = cast(w)
    litres, cups = w.pick([("two litres", "two cups"), ("one and a half litres", "one cup"), ("one litre", "one cup"), ("two litres", "one pot")])
    c.update(litres=litres, cups=cups, minutes=w.pick(["four", "five", "six"]), short=w.pick(["one minute", "less than two minutes", "a minute and a half"]))
    return " ".join(filter(None, [
        opening(w, c),
        w.say("$Who {wanted|wished} to make tea for $friend, so $he filled the kettle to the {top|brim} and {switched|turned} it on.", **c),
        w.say("It took $minutes minutes {before|until} the water boiled, and {in the end|then} they {needed|used} only $cups.", **c),
        w.say("\"{How much|What} did that cost?\" asked $friend. {\"Not much,\" said $who, \"but more than it {had to|should}.\"|$Who {took|found} a pencil and began to {count|calculate}.}", **c),
        w.say("You {had|heated} $litres in the kettle, and every litre {takes|needs} 336 kilojoules {to go from 20 to 100 degrees|to boil}.".join(["\"", "\""]).replace('."', ',"') + " {$friend said|said $friend|$fhe said}.", **c),
        w.say("\"{The rest of the water only warmed the kitchen|All the heat in the water that we did not drink is lost}.\"", **c),
        w.say("{The next {day|time}|On the following day}, $who {put only as much water in the kettle as they needed|measured the water with the cups first}, and {it boiled|the water was hot} in $short.", **c),
        w.say("{The tea was just as good.|The tea tasted the same.|The tea was hot, and the meter had {hardly moved|counted much less}.}"),
        lesson(w, c),
    ]))


def program(w):
    """A computer is slow and warm; the cause is found by measuring."""
    c = cast(w)
    task, cause, remedy, gain = w.pick([
        ("sort {the names of all the ships|a long list of names}", "it read the whole list again for every single name", "made it read the list only once", "a tenth"),
        ("draw a map of the {island|town}", "it drew every house, even those that nobody could see", "let it draw only what was on the screen", "a quarter"),
        ("write {answers to letters|short stories}", "its weights were larger than they had to be, and all of them came from memory for every token", "stored the weights in eight bits instead of thirty two", "a quarter"),
        ("count the {birds|cars} in the pictures", "it waited for memory most of the time", "put the numbers in the order in which they were used", "a third"),
        ("forecast the {weather|wind}", "four cores were waiting for one", "shared the work fairly among the cores", "half"),
        ("answer questions", "it did one question after the other and read all its weights each time", "let it answer eight questions at once, so that the weights were read once for all of them", "a fifth"),
    ])
    c.update(task=w.say(task), cause=cause, remedy=remedy, gain=gain, watts=w.pick([40, 60, 80, 120, 200]), idle=w.pick([5, 10, 15, 20]))
    return " ".join(filter(None, [
        opening(w, c),
        w.say("$Who had a computer that {had to|should} $task{ every night|}, and the fan was {as loud as the wind|very loud}.", **c),
        w.say("\"{It needs a bigger fan|Buy a faster one},\" said $friend. \"{First I want to know where the energy goes|Let me measure first},\" {answered|said} $who.", **c),
        w.say("{At rest the computer drew $idle watts, and during the work it drew $watts.|The meter showed $idle watts at rest and $watts watts at work.}", **c),
        w.say("{$Who {measured|looked at} every part of the program, one after another.|Then $who measured each part of the work by itself.|$He wrote down the time and the energy of {every|each} step.}", **c),
        w.say("{The largest part was a surprise|One step used nearly everything|The numbers were clear}: $cause.", **c),
        w.say("{So $who|The next day $who|After a {cup of tea|short walk}, $who} $remedy.", **c),
        w.say("{Now the same work cost only $gain of the energy|The work was done with $gain of the energy}, and the fan {was quiet|could hardly be heard}.", **c),
        w.say("{\"So it did not need a bigger fan,\" said $friend.|\"And I wanted to buy a new one,\" said $friend.|}", **c),
        lesson(w, c),
    ]))


def light_in_storm(w):
    """A power cut, and a way to make light."""
    c = cast(w)
    source, work = w.pick([
        ("an old bicycle with a dynamo", "pedalled {slowly and evenly|as evenly as $he could}"), ("a small water wheel by the stream", "opened the gate, and the water {began|started} to turn the wheel"),
        ("a hand crank with a magnet", "turned the crank {round and round|with both hands}"), ("the battery of the old cart", "joined the two wires with care"),
        ("a solar panel and a battery", "brought the battery that the sun had filled {during the day|before the storm}"),
    ])
    c.update(source=source, work=w.say(work, **c), need=w.pick(["the doctor needed light", "the children were afraid", "the ships needed the light of the tower", "the hens needed warmth", "the radio had to call for help", "the bread was still in the oven"]))
    return " ".join(filter(None, [
        opening(w, c),
        w.say("{A storm|A great storm|Heavy snow} {broke the line|had torn down the wires}, and {all the lamps went out|the whole place was dark}.", **c),
        w.say("But {$need|that night $need}.", **c),
        w.say("\"{We need|All we need is} a little power,\" said $who. \"{Ten watts would do|A lamp of ten watts is enough}.\"", **c),
        w.say("In the {barn|shed|cellar} {$friend found|they found|there was} $source.", **c),
        w.say("$Who $work, and {slowly|after a while|at once} the {small |}lamp began to {glow|shine}.", **c),
        w.say("{It was not much, but it was enough.|The light was small and steady.|\"It is hard work for one small lamp,\" {laughed|said} $friend.|}", **c),
        w.say("{\"Ten watts,\" said $who, \"is ten joules every second, and now I feel each of them.\"|In one hour the lamp used ten watt hours, {no more than|about as much as} a {spoon|slice} of bread {holds|gives}.|They took turns until the morning.}".replace("{no more than|about as much as} a {spoon|slice} of bread {holds|gives}", "which is 36 kilojoules"), **c),
        w.say("{When the sun rose|In the morning}, the {men|workers} came and {mended|repaired} the line{, and all the lamps were bright again|}.", **c),
        lesson(w, c),
    ]))


def contest(w):
    """Two machines compete; the one that wastes less wins."""
    c = cast(w)
    machine, flaw, virtue = w.pick([  # what a mill grinds and a program writes is counted below
        ("boat", "threw water to all sides", "cut through the water like a knife"), ("cart", "had soft wheels and a heavy frame", "was light and its bearings were well oiled"),
        ("glider", "was strong but thick, and the air held it back", "had long, thin wings"), ("robot", "ran fast and then stood waiting for its own memory", "thought before it moved and never went back"),
        ("mill", "shook and groaned, and its axle was hot", "turned so smoothly that one could hardly hear it"), ("program", "read everything twice", "read each number once and kept it close"),
        ("train", "braked hard at every bend and threw its energy away as heat", "let its motors give energy back whenever it braked"),
    ])
    c.update(machine=machine, flaw=flaw, virtue=virtue, rule=w.pick(["ten kilojoules", "one battery", "one watt hour", "a hundred kilojoules", "one small tank"]), far=w.pick([200, 300, 400, 500]), further=w.pick([600, 700, 800, 900]),
             unit={"mill": "turns", "program": "pages", "robot": "steps"}.get(machine, "metres"))
    return " ".join(filter(None, [
        opening(w, c),
        w.say("{Every year|That year} there was a contest{ for young builders|}: who could {get the most out of|do the most with} $rule?", **c),
        w.say("$Who built a $machine, and $friend built one too.", **c),
        w.say("The $machine of $friend was {large and strong|loud and fast|painted red}, and {everybody|everyone} {thought|was sure} it would win.", **c),
        w.say("{But it|It} $flaw. After $far $unit it {stopped|had nothing left|stood still}.", **c),
        w.say("{Then came|Now it was the turn of} the $machine of $who. It was {small and plain|grey and quiet|slow to start}, but it $virtue.", **c),
        w.say("It {went on and on|did not tire} and {came to rest|stopped} only after $further $unit.", **c),
        w.say("\"How did you do {it|that}?\" asked $friend. \"{Yours had the power|You were faster},\" said $who, \"{but mine wasted less|but I looked at what was lost}.\"", **c),
        w.say("{The next year they built one together.|They shook hands.|They shared the prize, because both had learned something.|}"),
        lesson(w, c),
    ]))


def why_talk(w):
    """A child asks, an older person explains."""
    c = cast(w)
    elder = w.pick(["grandmother", "grandfather", "aunt", "uncle", "teacher"])
    subject, talk = w.pick([
        ("the laptop was warm", ["Inside there are {millions of|a great many} tiny switches", "Each switch uses a little energy when it turns on or off", "All that energy becomes heat in the end", "That is why the fan blows the warm air out"]),
        ("the train made a singing sound when it stopped", ["Its motors were working as generators", "They turn the motion back into electricity", "Another train can use that energy to start", "So the brakes stay cool and nothing is lost that can be used"]),
        ("the phone was empty so early in the cold", ["A battery makes current from chemicals", "In the cold the chemicals work slowly", "When it is warm again, the battery feels stronger", "So keep it close to you in winter"]),
        ("the wheel of the mill turned", ["The water comes down from the hill", "The sun lifted it up there as clouds and rain", "Now it falls and pushes the wheel", "So the mill is really driven by the sun"]),
        ("the meter on the wall was counting", ["It counts the energy that comes into the house", "Every lamp and every machine adds a little", "A kilowatt hour is 3.6 million joules", "When all is off, it stands still"]),
        ("the spoon in the tea got hot", ["Heat moves from warm things to cold ones", "Metal carries it quickly", "A wooden spoon carries it slowly", "That is why the pan has a wooden handle"]),
        ("the computer could write a story", ["It has read many stories and learned what word may come next", "It writes one small piece after another", "For each piece it must read all that it has learned from memory", "That costs a little energy every time"]),
        ("the blades of the turbine were so long", ["A long blade sweeps more air than a short one", "When the wind blows twice as fast, it carries eight times the power", "So people build them high and wide", "In a storm they are turned out of the wind"]),
        ("the bulb was warm", ["A lamp turns electricity into light and heat", "The old ones made nearly only heat", "The new ones make much more light from the same energy", "You can touch them without burning your fingers"]),
        ("ice cream stayed hard in the freezer", ["The freezer does not make cold", "It pumps the heat out into the kitchen", "Feel the back of it, where the heat comes out", "So close the door quickly, or it has to begin again"]),
    ])
    c.update(elder=elder, subject=subject)
    asks = [w.say("\"{And then|And what happens then|What comes next}?\" asked $who.", **c), w.say("$Who {thought about it|nodded|looked closely|was silent for a moment}.", **c),
            w.say("\"{Really|Is that true}?\" {said|asked} $who. \"{Yes|It is},\" said the $elder.", **c), ""]
    lines = [opening(w, c) if w.chance(0.4) else "", w.say("{$Who asked $his $elder why $subject.|\"{I wonder|I should like to know} why $subject,\" said $who to $his $elder.|$Who wanted to know why $subject, and $his $elder {knew|could explain it}.}", **c)]
    open_quote = False
    for index, line in enumerate(talk):
        line = w.say(line)
        if index == 0:
            lines.append(w.say("\"$line,\" {said|explained} the $elder.", line=line, **c))
        elif open_quote:
            lines[-1] = lines[-1][:-1] + f' {line}."'
        else:
            lines.append(f'"{line}."')
        open_quote = index > 0
        if index in (1, 2) and w.chance(0.5):
            reply = w.pick(asks)
            if reply:
                lines.append(reply)
                open_quote = False
    lines.append(w.say("{\"Now I understand,\" said $who.|\"I will remember that,\" said $who.|$Who {ran off|went out} to tell $friend.|\"Then {nothing is lost|energy only changes its form},\" said $who. \"{That is right|Exactly},\" said the $elder.}", **c))
    return " ".join(filter(None, lines))


def fable(w):
    """Machines that talk, with a small truth."""
    one, two, quarrel, turn, end = w.pick([
        ("processor", "memory", "\"I am the fastest here,\" said the processor. \"And still you wait for me,\" said the memory.", "The processor grew hot from waiting and the memory grew tired of running.", "So they put a small cache between them, and {both had peace|the work went well}."),
        ("watt", "joule", "\"I show how strong a machine is,\" said the watt. \"But I show what it costs,\" said the joule.", "A clock heard them and laughed. \"Multiply the watt by my seconds, and you get the joule.\"", "Since then the three of them have {worked together|been friends}."),
        ("kettle", "lamp", "\"I draw two thousand watts,\" said the kettle, \"and you only ten.\" The lamp said nothing and shone.", "But the kettle worked for three minutes a day and the lamp for ten hours.", "In the evening the meter showed that both had used a hundred watt hours, and the kettle was {silent|ashamed}."),
        ("fan", "heat sink", "\"I do all the work,\" said the fan. \"You only stand there,\" it told the heat sink.", "So the heat sink went away, and the fan blew as hard as it could, but the processor burned its fingers.", "\"Come back,\" said the fan, \"for {alone I only move air|without you I cool nothing}.\""),
        ("battery", "sun", "\"I work at night, too,\" said the battery. \"And who fills you?\" asked the sun.", "For a week there were only clouds, and the battery grew weak.", "When the sun came back, the battery said, \"{Thank you|I keep only what you give}.\""),
        ("wind", "mill", "\"You only turn because of me,\" said the wind. \"And you only grind because of me,\" said the mill.", "Then came a storm, and the mill had to stop, because too much power is as bad as too little.", "The next day the wind blew gently, and {there was flour for everyone|the mill turned again}."),
        ("large model", "small model", "\"I know more than you,\" said the large model. \"But I answer with a tenth of the energy,\" said the small one.", "A farmer asked when to sow the peas, and both gave the same answer.", "\"For hard questions I will ask the large one,\" said the farmer, \"and for the others {the small one will do|I will spare the battery}.\""),
        ("train", "lorry", "\"I go wherever I like,\" said the lorry. \"And I carry a whole village,\" said the train.", "They both climbed the hill, and the lorry drank fuel at every bend.", "On the way down the train gave energy back to the line, and the lorry {only warmed its brakes|burned its brakes}."),
    ])
    places = w.pick(["in an old house", "in a workshop", "on a high shelf", "in a quiet valley", "inside a grey box", "at the edge of a town", "in a school", "not far from here"])
    open_line = w.say("{Once|One day|Long ago|One night, when nobody was there}, a $one and a $two {began to quarrel|had a quarrel|were talking} $places.".replace("a $two", a(two)).replace("a $one", a(one)), one=one, two=two, places=places)
    tail = w.say(w.pick(["", "", "{What does this teach us? |}" + w.pick(LESSONS), "{The cat had heard it all and went to sleep in the warm place.|The clock ticked, and it was quiet again.|The next morning nobody noticed anything.}"]))
    return " ".join(filter(None, [open_line, w.say(quarrel), w.say("{For a while nothing happened.|They did not speak for a whole day.|So it went on for a long time.|}"), turn, w.say(end), tail]))


def lab_notes(w):
    """Entries of a measurement diary, with figures that agree."""
    c = cast(w)
    device, idle, busy = w.pick([("laptop", 6, 45), ("small server", 60, 220), ("graphics card", 30, 280), ("pump", 2, 180), ("lamp", 0, 10), ("robot", 12, 90), ("motor", 5, 500), ("printer", 8, 300)])
    seconds = w.pick([10, 20, 30, 60, 100])
    gross, base = busy * seconds, idle * seconds
    c.update(device=device, idle=idle, busy=busy, s=seconds, gross=number(gross), base=number(base), net=number(gross - base), n=w.pick([3, 5, 10]), spread=w.pick([1, 2, 3]))
    return w.say(w.pick([
        "Notes of $who, {Monday|Tuesday|Wednesday|Thursday|Friday}. The $device at rest draws $idle watts. At work it draws $busy watts. The work took $s seconds, so the whole energy was $gross joules. {Of these, $base joules were idle energy|The idle part was $base joules}, and $net joules belong to the work. {Repeated $n times, the readings differ by $spread percent.|Next time: wait until the machine is quiet before starting.|}",
        "{Today|This morning} $who measured the $device. {First|Before the start} $he waited until it was quiet: $idle watts. Then the work began, and the power rose to $busy watts for $s seconds. \"That makes $gross joules in all,\" said $who. \"{Without the idle power|If I take away the idle energy}, $net joules {remain|are left}.\" $friend {checked the sum|looked at the figures} and {agreed|nodded}.",
        "How $who measures the $device: {wait|it is best to wait} until it rests, note the idle power, start the work, stop the clock. Idle power: $idle watts. Power at work: $busy watts. Time: $s seconds. Energy: $gross joules. Energy without idle: $net joules. {Repeat it $n times and take the mean.|One reading alone proves little.}",
    ]), **c)


def advice(w):
    """A short list of ways to save energy, with reasons."""
    tips = w.sample([
        "{Turn off|Switch off} lamps in empty rooms, because light that nobody sees is wasted.", "Boil only the water {that you need|you need}.", "Close the door of the refrigerator {quickly|soon}, so that the cold stays inside.",
        "Clean the fan, because dust keeps the heat in.", "Let the computer sleep when you leave.", "Pump up the tyres, because soft tyres waste energy.", "Wash {clothes|the clothes} at a low temperature, since most of the energy goes into warm water.",
        "Put a lid on the pot, so that the heat stays in the water.", "Use a smaller model when the question is easy.", "Ask several questions in one batch, so that the weights are read only once.", "Store numbers in fewer bits, so that fewer bytes have to be moved.",
        "Keep data close to the processor, because moving it costs more than adding it.", "Oil the bearings, because friction turns motion into heat.", "Brake gently, and let the motor give energy back.", "Measure first, so that you know what is worth changing.", "Open the window for a short time and close it again, instead of leaving it open a little all day.",
    ], w.rng.randint(3, 5))
    first = w.say("{How can a house save energy?|There are many ways to save energy.|Here is how to use less energy.|What can one do to waste less?|Some good advice for saving energy:|If you want to save energy, begin with small things.}")
    if w.chance(0.4):
        return first + "\n" + "\n".join(f"{i + 1}. {w.say(t)}" for i, t in enumerate(tips))
    links = ["First, ", "Then, ", "Also, ", "Besides, ", "At last, "]
    return first + " " + " ".join((lambda s: links[i] + s[0].lower() + s[1:])(w.say(t)) for i, t in enumerate(tips))


KINDS = [detective, battery_trip, tea, program, light_in_storm, contest, why_talk, why_talk, fable, lab_notes, advice]


def story(w):
    return w.pick(KINDS)(w)
