"""The expressions that a pipeline's SQL may have: those whose result depends on the row alone, by the names of Spark's classes.

The one rule: what is not listed is refused. Spark's own flag is not enough: it holds `current_timestamp()`, `current_user()` and an
encryption with a random initial vector for deterministic.
"""

from typing import Final

PACKAGE: Final = "org.apache.spark.sql.catalyst.expressions."

_STRUCTURE: Final = """
    Alias AttributeReference OuterReference Literal Cast UpCast CheckOverflow PromotePrecision With
    CommonExpressionDef CommonExpressionRef LambdaFunction NamedLambdaVariable GetStructField
    GetArrayStructFields GetArrayItem GetMapValue CreateArray CreateMap CreateNamedStruct ResolvedCollation
    Collate Collation KnownNotNull AssertNotNull objects.StaticInvoke objects.Invoke
"""
_CONDITIONS: Final = """
    And Or Not EqualTo EqualNullSafe EqualNull GreaterThan GreaterThanOrEqual LessThan LessThanOrEqual In InSet
    IsNull IsNotNull IsNaN Like LikeAll LikeAny NotLikeAll NotLikeAny ILike RLike Between CaseWhen Coalesce If
    NaNvl NullIf NullIfResult NullIfZero Nvl Nvl2 ZeroIfNull AtLeastNNonNulls Contains StartsWith EndsWith
"""
_NUMBERS: Final = """
    Abs Acos Acosh Add Asin Asinh Atan Atan2 Atanh BRound Bin BitwiseAnd BitwiseCount BitwiseGet BitwiseNot
    BitwiseOr BitwiseXor Cbrt Ceil CeilExpressionBuilder Conv Cos Cosh Cot Csc Divide EulerNumber Exp Expm1
    Factorial Floor Greatest Hex Hypot IntegralDivide Least Log Log10 Log1p Log2 Logarithm Multiply Pi Pmod Pow
    Remainder Rint Round RoundCeil RoundFloor Sec ShiftLeft ShiftRight ShiftRightUnsigned Signum Sin Sinh Sqrt
    Subtract Tan Tanh ToDegrees ToRadians TryAdd TryDivide TryEval TryMod TryMultiply TrySubtract UnaryMinus
    UnaryPositive Unhex UnscaledValue MakeDecimal WidthBucket Crc32 Md5 Murmur3Hash Sha1 Sha2 XxHash64
"""
_TEXTS: Final = """
    Ascii Base32 Base64 BitLength Chr Concat ConcatWs Decode DefaultStringProducingExpression Elt Encode
    FindInSet FormatNumber FormatString InitCap IsValidUTF8 JaroWinkler Left Length Levenshtein Lower Luhncheck
    MakeValidUTF8 Mask OctetLength Overlay Quote RegExpCount RegExpExtract RegExpExtractAll RegExpInStr
    RegExpReplace RegExpSubStr Right Sentences SoundEx SplitPart StringInstr StringLocate StringLPad StringRPad
    BinaryPad StringRepeat StringReplace StringSpace StringSplit StringSplitSQL StringDecode StringTranslate
    StringTrim StringTrimBoth StringTrimLeft StringTrimRight Substring SubstringIndex ToBinary ToCharacter
    ToNumber TryToBinary TryToNumber TryValidateUTF8 UnBase32 UnBase64 Upper ValidateUTF8 ParseUrl TryParseUrl
    TryUrlDecode UrlDecode UrlEncode GetJsonObject JsonObjectKeys JsonToStructs LengthOfJsonArray StructsToJson
    CsvToStructs StructsToCsv TypeOf
"""
_TIMES: Final = """
    AddMonths ConvertTimezone DateAdd DateAddInterval DateAddYMInterval DateDiff DateFormatClass
    DateFromUnixDate DatePart DateSub DayName DayOfMonth DayOfWeek DayOfYear DivideDTInterval DivideYMInterval
    Extract ExtractANSIIntervalDays ExtractANSIIntervalHours ExtractANSIIntervalMinutes
    ExtractANSIIntervalMonths ExtractANSIIntervalSeconds ExtractANSIIntervalYears FromUTCTimestamp FromUnixTime
    Hour LastDay MakeDTInterval MakeDate MakeInterval MakeTimestamp MakeTimestampNTZ MakeYMInterval
    MicrosToTimestamp MillisToTimestamp Minute Month MonthName MonthsBetween MultiplyDTInterval
    MultiplyYMInterval NextDay ParseToDate ParseToTimestamp GetTimestamp Quarter Second SecondWithFraction
    SecondsToTimestamp SubtractDates SubtractTimestamps TimestampAdd TimestampAddInterval TimestampAddYMInterval
    TimestampDiff ToUTCTimestamp ToUnixTimestamp TruncDate TruncTimestamp TryMakeInterval TryMakeTimestamp
    TryToTimestampExpressionBuilder UnixDate UnixMicros UnixMillis UnixSeconds UnixTimestamp WeekDay WeekOfYear
    Year YearOfWeek DatetimeSub PreciseTimestampConversion TimeAdd
"""
_COLLECTIONS: Final = """
    ArrayAggregate ArrayAppend ArrayCompact ArrayContains ArrayDistinct ArrayExcept ArrayExists ArrayFilter
    ArrayForAll ArrayInsert ArrayIntersect ArrayJoin ArrayMax ArrayMin ArrayPosition ArrayPrepend ArrayRemove
    ArrayRepeat ArraySize ArraySort ArrayTransform ArrayUnion ArraysOverlap ArraysZip ElementAt Flatten Get
    MapConcat MapContainsKey MapEntries MapFilter MapFromArrays MapFromEntries MapKeys MapValues MapZipWith
    Reverse Sequence Size Slice SortArray StringToMap TransformKeys TransformValues TryElementAt ZipWith Explode
    PosExplode Inline Stack JsonTuple GeneratorOuter
"""

CLASSES: Final = frozenset(" ".join((_STRUCTURE, _CONDITIONS, _NUMBERS, _TEXTS, _TIMES, _COLLECTIONS)).split())

TIME_PARSERS: Final = frozenset(
    {"Cast", "ParseToDate", "ParseToTimestamp", "GetTimestamp", "UnixTimestamp", "ToUnixTimestamp"}
)
"""They take a constant text such as `today` for the time at which the query runs."""
SPECIAL_TIMES: Final = ("now", "today", "tomorrow", "yesterday")

_NAMES: Final = """
    abs acos add_months array array_compact array_contains array_distinct array_except array_intersect
    array_join array_max array_min array_position array_remove array_repeat array_union arrays_overlap
    arrays_zip ascii asin atan atan2 base64 bin bround cast cbrt ceil char_length coalesce concat concat_ws conv
    cos cosh crc32 date_add date_diff date_format date_from_unix_date date_sub date_trunc datediff day
    dayofmonth dayofweek dayofyear degrees element_at elt encode decode endswith startswith contains exp explode
    explode_outer expm1 factorial find_in_set flatten floor format_number format_string from_json from_unixtime
    from_utc_timestamp get_json_object greatest hash hex hour hypot if ifnull in initcap inline instr isnan
    isnotnull isnull json_object_keys last_day lcase least left length levenshtein like ilike rlike ln locate
    log log10 log1p log2 lower lpad ltrim make_date map map_concat map_entries map_from_arrays map_from_entries
    map_keys map_values md5 minute mod month months_between named_struct nanvl negative next_day not nullif nvl
    nvl2 octet_length overlay parse_url pmod posexplode posexplode_outer positive power pow quarter radians
    regexp_count regexp_extract regexp_extract_all regexp_instr regexp_replace regexp_substr repeat replace
    reverse right rint round rpad rtrim second sequence sha sha1 sha2 shiftleft shiftright sign signum sin size
    slice sort_array soundex space split split_part sqrt stack str_to_map struct substr substring
    substring_index tan timestamp_micros timestamp_millis timestamp_seconds to_date to_json to_timestamp
    to_unix_timestamp to_utc_timestamp translate trim trunc try_add try_cast try_divide try_element_at
    try_multiply try_subtract typeof ucase unbase64 unhex unix_date unix_micros unix_millis unix_seconds upper
    weekday weekofyear xxhash64 year and or when then else between
"""
NAMES: Final = frozenset(_NAMES.split())
"""Names of functions that a plan's text may show, for Spark Connect."""
